"""`foreword prepare`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from foreword.display.progress import ProgressDisplay, progress_of
from foreword.display.results import Facts, Part, Result, ResultTable
from foreword.errors import UserError
from foreword.settings.ranges import Count, Workers
from foreword.verbs._contract import PYTHON_ONLY, REQUIRED, Flag, PathName, Paths, Settings, Verb
from foreword.verbs._reading import HoldsOut, ReadsText, naming

if TYPE_CHECKING:
    from foreword.data.holdout import SplitFiles
    from foreword.data.prepared_text import PreparedText
    from foreword.data.write_shards import PrepareSettings
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
class Prepare(HoldsOut, ReadsText, Verb[PreparationResult]):
    """Turn text files into token shards, once for many runs; up-to-date shards are reused.

        shards = foreword.prepare("books/", "shards", kind="bpe", vocab=16_000)
        foreword.pretrain("gpt2_mini", shards.folder, "runs/gpt")

    Shards of another text, tokenizer or settings are not overwritten, since runs need those that
    they were trained on. With any number of workers, and with --ray, they are the same bytes.

    Attributes:
        data: text files, folders, globs.
        out: folder for the shards.
        texts: documents in place of `data`, any iterable of texts, read once; they are kept in
            `OUT.jsonl`.
        tokenizer: tokenizer folder; default: train one on the text.
        kind: tokenizer to train: wordpiece (default), bpe, unigram, word or char.
        vocab: vocabulary size to train.
        settings: other settings of the tokenizer, by name.
        sentences: whether to split documents into sentences, or keep them whole.
        workers: number of processes; 0 for one per core.
        ray: cut the text into tokens on a Ray cluster: HOST:PORT, auto, or local to start one on
            this machine.
        progress: whether to show the progress, or what shows it.
    """

    data: Annotated[Paths | None, TEXTS] = None
    out: Annotated[PathName, REQUIRED] = "shards"
    _: KW_ONLY
    texts: Annotated[Iterable[str] | None, PYTHON_ONLY] = None
    tokenizer: PathName | None = None
    kind: str | None = None
    vocab: Count | None = None
    settings: Annotated[Settings, PYTHON_ONLY] = ()
    sentences: bool = True
    workers: Workers = 0
    ray: Annotated[str | None, Flag(metavar="ADDRESS")] = None
    progress: Annotated[bool | ProgressDisplay, PYTHON_ONLY] = True

    def __call__(self) -> PreparationResult:
        from foreword.data import write_shards
        from foreword.data.holdout import SplitFiles, require_parts
        from foreword.data.learning import train_tokenizer
        from foreword.data.prepared_text import require_free
        from foreword.data.read_documents import read_documents
        from foreword.data.text_files import ReadSettings
        from foreword.data.write_shards import PrepareSettings
        from foreword.runs.run import require_not_a_run
        from foreword.text.tokenizer import Tokenizer
        from foreword.verbs import _arguments
        from foreword.verbs._cluster import on_cluster

        # Check every argument before any text is read.
        if (self.data is None) == (self.texts is None):
            raise UserError(_arguments.DATA_OR_TEXTS)
        out = _arguments.path(self.out, "--out")
        paths = list(_arguments.paths(self.data))
        if self.texts is not None:
            self.refuse_reading("cannot be combined with texts, which are documents as they are")
            paths = [str(_arguments.texts_file(out))]
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
        display = progress_of(self.progress)
        with ExitStack() as stack:
            cluster = stack.enter_context(on_cluster(self.ray))
            stack.enter_context(_arguments.kept(self.texts, out))
            stack.enter_context(display)
            stack.enter_context(naming(kind="--kind", vocab="--vocab"))
            files = SplitFiles.find(paths, read, heldout)
            tokenizer = _existing(out, files, how, tokenizer)
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
        """Return the tokenizer in a folder, or the settings to train one with.

        Raises:
            UserError: there are both, or a setting is impossible.
        """
        from foreword.settings import config
        from foreword.text.tokenizer import Tokenizer
        from foreword.verbs import _arguments

        if self.tokenizer is not None:
            if self.kind is not None or self.vocab is not None or self.settings:
                raise UserError(
                    "--tokenizer cannot be combined with --kind or --vocab, to train one"
                )
            return Tokenizer.load(_arguments.path(self.tokenizer, "--tokenizer"))
        table: dict[str, Any] = {"kind": self.kind or "wordpiece"}
        table |= {} if self.vocab is None else {"vocab": self.vocab}
        with naming(kind="--kind", vocab="--vocab"):
            return _trainer(config.assign(table, _arguments.assignments(self.settings)))


def _trainer(table: dict[str, Any]) -> TokenizerKind:
    """Return the settings that a tokenizer is trained with.

    Raises:
        UserError: there are no such settings.
    """
    from foreword.settings import config, kinds

    part = kinds.Part("text/tokenizers")
    trainer: TokenizerKind = config.build_kind(part, table, "tokenizer")
    return trainer


def _existing(
    out: Path,
    files: SplitFiles,
    how: PrepareSettings,
    tokenizer: Tokenizer | TokenizerKind,
) -> Tokenizer | TokenizerKind:
    """Return the tokenizer of the shards in `out`; `tokenizer` if there are no complete shards.

    Args:
        out: the folder for the shards.
        files: the files to train on and to hold out.
        how: how documents become shards.
        tokenizer: the tokenizer, or the settings to train it with.

    Raises:
        UserError: the shards are of other text, settings or tokenizer, and would be lost to the
            runs that were trained on them.
    """
    from foreword.data.prepared_text import PreparedText
    from foreword.data.write_shards import fingerprint_of
    from foreword.text.tokenizer import Tokenizer

    try:
        prepared = PreparedText.load(out, verify=False)
        existing = Tokenizer.load(prepared.tokenizer)
    except UserError:  # nothing there, or nothing whole
        return tokenizer
    if isinstance(tokenizer, Tokenizer):
        is_same = existing.fingerprint == tokenizer.fingerprint
    else:
        try:
            is_same = _trainer(dict(existing.kind)) == tokenizer
        except UserError:  # another tool trained it
            is_same = False
    if not is_same or prepared.fingerprint != fingerprint_of(files, existing, how):
        raise UserError(
            f"{out}: holds shards of another text, tokenizer or settings, and runs trained on them "
            "need them; choose another --out, or delete the folder"
        )
    return tokenizer if isinstance(tokenizer, Tokenizer) else existing
