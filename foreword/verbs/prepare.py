"""`foreword prepare`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from foreword.display.results import Facts, Part, Result, ResultTable
from foreword.errors import UserError
from foreword.settings import config
from foreword.settings.ranges import Count, Workers
from foreword.verbs._arguments import assignments, paths, saved_texts
from foreword.verbs._contract import PYTHON_ONLY, REQUIRED, Flag, PathName, Paths, Settings, Verb
from foreword.verbs._grids import connected_to
from foreword.verbs._groups import HoldsOut, ShowsProgress, TakesTexts, naming

if TYPE_CHECKING:
    from foreword.data.prepared_text import PreparedText
    from foreword.text.tokenizer import Tokenizer
    from foreword.text.tokenizers._contract import TokenizerKind

COLUMNS = ("documents", "sequences", "tokens", "bytes", "unknown")
TEXTS = Flag(is_argument=True, metavar="TEXT...", is_required=True)


@dataclass(frozen=True, repr=False)
class PreparationResult(Result):
    """Token shards, ready to train on.

    Attributes:
        prepared: the shards and their manifest.
        tokenizer: the tokenizer.
    """

    prepared: PreparedText
    tokenizer: Tokenizer

    @property
    def folder(self) -> Path:
        """The folder of the shards, to pass as `data`."""
        return self.prepared.folder

    def __fspath__(self) -> str:
        return str(self.folder)

    def tables(self) -> Sequence[Part]:
        """Return the counts, of what was skipped as well as of what was read."""
        from foreword.data.prepared_text import data_warnings
        from foreword.text.training import describe

        rows = [
            {"": name, **{column: getattr(counts, column) for column in COLUMNS}}
            for name, counts in self.prepared.counts.items()
        ]
        counts = self.prepared.manifest["read"]["counts"]
        state = "unchanged, reused" if self.prepared.reused else "written"
        facts = {
            "files read": counts["files"],
            **data_warnings(counts),
            "shards": f"{self.folder} ({state})",
            "tokenizer": str(self.prepared.tokenizer),
            "vocabulary": self.tokenizer.vocab.size,
            "trained on": describe(self.tokenizer) or None,
        }
        return [ResultTable(rows), Facts(facts)]

    def data(self) -> dict[str, Any]:
        """Return the folder and its manifest."""
        manifest = self.prepared.manifest
        return {"folder": str(self.folder), "reused": self.prepared.reused, **manifest}


@dataclass(frozen=True)
class Prepare(HoldsOut, TakesTexts, ShowsProgress, Verb[PreparationResult]):
    """Turn text files into token shards, once for many runs; up-to-date shards are reused.

        shards = foreword.prepare("books/", "shards", kind="bpe", vocab=16_000)
        foreword.pretrain("gpt2_mini", shards.folder, "runs/gpt")

    Shards of another text, tokenizer or settings are not overwritten, since runs need those that
    they were trained on. With any number of workers, and with --ray, they are the same bytes.

    Attributes:
        data: text files, folders, globs.
        out: folder for the shards.
        tokenizer: tokenizer folder; default: train one on the text.
        kind: tokenizer to train: wordpiece (default), bpe, unigram, word or char.
        vocab: vocabulary size to train.
        settings: other settings of the tokenizer, by name.
        sentences: whether to split documents into sentences, or keep them whole.
        workers: number of processes; 0 for one per core.
        ray: cut the text into tokens on a Ray cluster: HOST:PORT, auto, or local to start one on
            this machine.
    """

    data: Annotated[Paths | None, TEXTS] = None
    out: Annotated[PathName, REQUIRED] = "shards"
    _: KW_ONLY
    tokenizer: PathName | None = None
    kind: str | None = None
    vocab: Count | None = None
    settings: Annotated[Settings, PYTHON_ONLY] = ()
    sentences: bool = True
    workers: Workers = 0
    ray: Annotated[str | None, Flag(metavar="ADDRESS")] = None

    def __call__(self) -> PreparationResult:
        from foreword.data import write_shards
        from foreword.data.existing_shards import existing_tokenizer
        from foreword.data.holdout import SplitFiles, require_parts
        from foreword.data.learning import train_tokenizer
        from foreword.data.prepared_text import require_free
        from foreword.data.read_documents import read_documents
        from foreword.data.text_files import ReadSettings
        from foreword.data.write_shards import PrepareSettings
        from foreword.runs.run import require_not_a_run
        from foreword.text.tokenizer import Tokenizer

        # Check every argument before any text is read.
        out = Path(self.out)
        texts = self.files(paths(self.data), out)
        read = self.read_as(ReadSettings())
        how = PrepareSettings(sentences=self.sentences, workers=self.workers)
        how, heldout = self.held_out(how)
        if self.ray is not None and self.workers:
            raise UserError(
                "--workers cannot be combined with --ray, which uses all of the cluster"
            )
        require_not_a_run(out)
        require_free(out)
        tokenizer = self._tokenizer()

        # Train the tokenizer, unless there is one, and write the shards.
        with (
            connected_to(self.ray) as cluster,
            saved_texts(self.texts, out),
            self.display() as display,
            naming("tokenizer", {"kind": "--kind", "vocab": "--vocab"}),
        ):
            files = SplitFiles.find(texts, read, heldout)
            tokenizer = existing_tokenizer(out, tokenizer, files, how)
            if not isinstance(tokenizer, Tokenizer):
                if how.heldout and not heldout:
                    require_parts(read_documents(files.train, read), is_whole=bool(read.target))
                tokenizer = train_tokenizer(tokenizer, files.train, read, display.stage)
            advance = display.stage("cutting text into tokens")

            def show(done: int, total: int) -> None:
                advance(done, total, f"{done / 1e6:,.0f} of {total / 1e6:,.0f} MB")

            prepared = write_shards.prepare(files, tokenizer, out, how, show, cluster)
        return PreparationResult(prepared, tokenizer)

    def _tokenizer(self) -> Tokenizer | TokenizerKind:
        """Return the tokenizer in a folder, or the settings to train one with."""
        from foreword.data.existing_shards import trainer_of
        from foreword.text.tokenizer import Tokenizer

        if self.tokenizer is not None:
            if self.kind is not None or self.vocab is not None or self.settings:
                raise UserError(
                    "--tokenizer cannot be combined with --kind or --vocab, to train one"
                )
            return Tokenizer.load(Path(self.tokenizer))
        table: dict[str, Any] = {"kind": self.kind or "wordpiece"}
        table |= {} if self.vocab is None else {"vocab": self.vocab}
        with naming("tokenizer", {"kind": "--kind", "vocab": "--vocab"}):
            return trainer_of(config.assign(table, assignments(self.settings)))
