"""`foreword prepare`: turn text files into token shards, once, for many runs."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foreword.cli import console
from foreword.cli._heldout import HeldOut
from foreword.cli._model_options import Json, Quiet, Ray
from foreword.cli._options import Options, PathText, naming
from foreword.cli._reading import Reading
from foreword.errors import UserError
from foreword.settings.ranges import Count, Workers

if TYPE_CHECKING:
    from foreword.data.prepared_text import PreparedText
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
    ray: Ray = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Turn text files into token shards; shards that are still up to date are reused.

    Shards of another text, tokenizer or settings are not overwritten, since runs need those that
    they were trained on. With any number of workers, and with --ray, they are the same bytes.
    """
    from foreword.api.prepare import prepare as work

    tokenizer_options.require_one_source()
    with naming(kind="--kind", vocab="--vocab"):
        result = work(
            texts,
            out,
            tokenizer=tokenizer_options.tokenizer,
            kind=tokenizer_options.kind,
            vocab=tokenizer_options.vocab,
            heldout=heldout,
            sentences=sentences,
            workers=workers,
            ray=ray,
            progress=not quiet,
            **asdict(reading),
        )
    prepared, tokenizer = result.prepared, result.tokenizer
    if as_json:
        console.emit({"folder": str(out), "reused": prepared.reused, **prepared.manifest})
    else:
        _show(prepared, tokenizer)


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
