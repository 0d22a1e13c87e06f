"""`foreword prepare`: turn text files into token shards, once, for many runs."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foreword.cli import console
from foreword.cli._heldout import HeldOut
from foreword.cli._options import Options, PathText, naming
from foreword.cli._places import spare_runs
from foreword.cli._reading import Reading
from foreword.display.bar import Bar
from foreword.errors import UserError
from foreword.ranges import Count, Workers

if TYPE_CHECKING:
    from foreword.data.prepared_text import PreparedText
    from foreword.data.text_files import ReadSettings
    from foreword.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class TokenizerOptions(Options):
    """A tokenizer to use, or the one to train."""

    tokenizer: Annotated[
        Path | None, typer.Option(help="Tokenizer folder; default: train one on the text.")
    ] = None
    kind: Annotated[
        str | None,
        typer.Option(help="Tokenizer to train: wordpiece (default), bpe, unigram, word or char."),
    ] = None
    vocab: Annotated[Count | None, typer.Option(help="Vocabulary size to train.")] = None

    def require_one_source(self) -> None:
        """Make sure that a tokenizer is either given or described.

        Raises:
            UserError: both.
        """
        if self.tokenizer is not None and (self.kind is not None or self.vocab is not None):
            raise UserError("--tokenizer cannot be combined with --kind or --vocab, to train one")

    def as_table(self) -> dict[str, Any]:
        """Return the tokenizer to train, as a recipe has it."""
        vocab = {} if self.vocab is None else {"vocab": self.vocab}
        return {"kind": self.kind or "wordpiece", **vocab}


def prepare(
    texts: Annotated[
        list[PathText], typer.Argument(metavar="TEXT...", help="Files, folders, globs.")
    ],
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder for the shards.")],
    tokenizer_options: TokenizerOptions,
    reading: Reading,
    heldout: HeldOut = None,
    sentences: Annotated[
        bool, typer.Option(help="Split documents into sentences, or keep them whole.")
    ] = True,
    workers: Annotated[Workers, typer.Option(help="Number of processes; 0 for one per core.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Turn text files into token shards; shards that are still up to date are reused."""
    from foreword.api._arguments import hold_out
    from foreword.data import write_shards as preparing
    from foreword.data.holdout import find_apart
    from foreword.data.prepared_text import require_free
    from foreword.data.read_documents import find_files
    from foreword.data.text_files import ReadSettings
    from foreword.text.tokenizer import Tokenizer

    # Check every option before any text is read.
    read = reading.on(ReadSettings())
    settings = preparing.PrepareSettings(sentences=sentences, workers=workers)
    settings, heldout_texts = hold_out(settings, heldout or ())
    tokenizer_options.require_one_source()
    spare_runs(out)
    require_free(out)
    find_apart(heldout_texts, find_files(texts, None, read), None, read)

    # Load or train the tokenizer, and write the shards.
    with console.progress() as bar:
        if tokenizer_options.tokenizer is not None:
            tokenizer = Tokenizer.load(tokenizer_options.tokenizer)
        else:
            with naming(kind="--kind", vocab="--vocab"):
                tokenizer = _train(bar, texts, read, out, tokenizer_options.as_table())
        advance = bar.stage("cutting text into tokens")

        def show(done: int, total: int) -> None:
            advance(done, total, f"{done / 1e6:,.0f} of {total / 1e6:,.0f} MB")

        prepared = preparing.prepare(texts, tokenizer, out, settings, read, show, heldout_texts)
    if as_json:
        console.emit({"folder": str(out), "reused": prepared.reused, **prepared.manifest})
    else:
        _show(prepared, tokenizer)


def _train(
    bar: Bar, texts: list[str], read: ReadSettings, out: Path, table: dict[str, Any]
) -> Tokenizer:
    """Return the tokenizer in `out` if it matches texts and settings, else train one."""
    from foreword import config, kinds
    from foreword.data.learning import train_tokenizer
    from foreword.data.read_documents import find_files

    kind = table["kind"]
    trainer = config.build_kind(kinds.Part("text/tokenizers", kind), table, "tokenizer")
    files = find_files(texts, None, read)
    existing = _existing_tokenizer(out, files, read)
    if existing is not None and existing.kind == {"kind": kind, **asdict(trainer)}:
        return existing
    return train_tokenizer(trainer, files, read, bar.stage)


def _existing_tokenizer(out: Path, files: list[Path], read: ReadSettings) -> Tokenizer | None:
    """Return the tokenizer in `out` if the shards there were made from the same texts."""
    from foreword.data.fingerprint import fingerprint_text
    from foreword.data.prepared_text import PreparedText
    from foreword.text.tokenizer import Tokenizer

    try:
        prepared = PreparedText.load(out, verify=False)
    except UserError:  # nothing there, or nothing whole
        return None
    if prepared.manifest["text"] != fingerprint_text(files, read):
        return None
    return Tokenizer.load(prepared.tokenizer)


def _show(prepared: PreparedText, tokenizer: Tokenizer) -> None:
    """Print the counts, of what was skipped as well as of what was read."""
    from foreword.data.prepared_text import data_warnings
    from foreword.text.training import describe

    columns = ("documents", "sequences", "tokens", "bytes", "unknown")
    rows = [
        (name, *(getattr(split, column) for column in columns))
        for name, split in prepared.counts.items()
    ]
    console.table("", ("", *columns), rows)
    counts = prepared.manifest["read"]["counts"]
    console.facts({"files read": counts["files"], **data_warnings(counts)})
    state = "unchanged, reused" if prepared.reused else "written"
    trained = {"trained on": sample} if (sample := describe(tokenizer)) else {}
    places = {"shards": f"{prepared.folder} ({state})", "tokenizer": str(prepared.tokenizer)}
    console.facts(places | trained)
