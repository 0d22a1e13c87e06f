"""`foreword prepare`: text files to token shards, once, for many runs."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foreword.cli import console
from foreword.cli._bar import Bar
from foreword.cli._heldout import HeldOut, hold_out
from foreword.cli._places import spare_runs
from foreword.cli._reading import Reading
from foreword.errors import UserError
from foreword.ranges import Count, Workers

if TYPE_CHECKING:
    from foreword.data.prepared_text import PreparedText
    from foreword.data.text_files import ReadSettings
    from foreword.text.tokenizer import Tokenizer


def prepare(
    texts: Annotated[list[str], typer.Argument(metavar="TEXT...", help="Files, folders, globs.")],
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where to write the shards.")],
    reading: Reading,
    tokenizer: Annotated[
        Path | None, typer.Option(help="A tokenizer's folder; without it one is trained.")
    ] = None,
    kind: Annotated[str | None, typer.Option(help="wordpiece, bpe, unigram, word, char.")] = None,
    vocab: Annotated[Count | None, typer.Option(help="Size of the tokenizer to train.")] = None,
    heldout: HeldOut = None,
    sentences: Annotated[
        bool, typer.Option(help="A sequence is a sentence, or a whole document.")
    ] = True,
    workers: Annotated[Workers, typer.Option(help="Processes; 0 for one per core.")] = 0,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON document, for scripts.")
    ] = False,
) -> None:
    """Make token shards of text files; what is made already and still true is reused."""
    from foreword.data import write_shards as preparing
    from foreword.data.holdout import find_apart
    from foreword.data.prepared_text import require_free
    from foreword.data.read_documents import find_files
    from foreword.data.text_files import ReadSettings
    from foreword.text.tokenizer import Tokenizer

    read = reading.on(ReadSettings())
    settings = preparing.PrepareSettings(sentences=sentences, workers=workers)
    settings, apart = hold_out(settings, heldout)
    if tokenizer is not None and (kind is not None or vocab is not None):
        raise UserError("--tokenizer is there already; --kind and --vocab are for training one")
    spare_runs(out)
    require_free(out)
    find_apart(apart, find_files(texts, None, read), None, read)
    with console.progress() as bar:
        if tokenizer is not None:
            found = Tokenizer.load(tokenizer)
        else:
            found = _train(bar, texts, read, out, {"kind": kind or "wordpiece"}, vocab)
        advance = bar.stage("cutting text into tokens")

        def show(done: int, total: int) -> None:
            advance(done, total, f"{done / 1e6:,.0f} of {total / 1e6:,.0f} MB")

        prepared = preparing.prepare(texts, found, out, settings, read, show, apart)
    if as_json:
        console.emit({"folder": str(out), "reused": prepared.reused, **prepared.manifest})
    else:
        _show(prepared, found)


def _train(
    bar: Bar,
    texts: list[str],
    read: ReadSettings,
    out: Path,
    table: dict[str, Any],
    vocab: int | None,
) -> Tokenizer:
    """A tokenizer trained on the texts, or the one in `out` if it was trained just so."""
    from foreword import config, kinds
    from foreword.data.learning import train_tokenizer
    from foreword.data.read_documents import find_files

    kind = table["kind"]
    table |= {} if vocab is None else {"vocab": vocab}
    trainer = config.build_kind(kinds.Part("text/tokenizers", kind), table, "tokenizer")
    files = find_files(texts, None, read)
    if (made := _made(out, files, read)) and made.kind == {"kind": kind, **asdict(trainer)}:
        return made
    return train_tokenizer(trainer, files, read, bar.stage)


def _made(out: Path, files: list[Path], read: ReadSettings) -> Tokenizer | None:
    """The tokenizer in `out`, if the shards there were made of the same texts."""
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
    """The counts, for people; what was not read is said as well as what was."""
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
    trained = {"trained on": said} if (said := describe(tokenizer)) else {}
    places = {"shards": f"{prepared.folder} ({state})", "tokenizer": str(prepared.tokenizer)}
    console.facts(places | trained)
