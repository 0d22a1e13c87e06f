"""`foreword score`: score a text by its probability under a model."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foreword.cli import console
from foreword.cli._model_options import Device, Json, Quiet, Run, open_model
from foreword.cli._reading import Reading
from foreword.formatting import probability, unknown_share_note
from foreword.settings.ranges import Count

if TYPE_CHECKING:
    from collections.abc import Iterator

    from foreword.data.text_files import ReadCounts
    from foreword.evaluation.perplexity import ScoreTotals
    from foreword.evaluation.prompting import PromptedModel
    from foreword.evaluation.scoring import TextScore

MAX_TOKENS_SHOWN = 60  # --json lists all


def score(
    run: Run,
    reading: Reading,
    text: Annotated[str | None, typer.Argument(help="The text to score.")] = None,
    file: Annotated[
        Path | None, typer.Option(help="Score a file or folder instead, and show totals only.")
    ] = None,
    source: Annotated[
        str | None, typer.Option(help="The source that the text answers, for a model with one.")
    ] = None,
    stride: Annotated[
        Count | None, typer.Option(help="Tokens from window to window; default: half a window.")
    ] = None,
    device: Device = "auto",
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Score a text token by token, or a file: log-probability, perplexity, bits per byte."""
    from foreword.data.prepared_text import data_warnings
    from foreword.errors import UserError
    from foreword.evaluation import scoring

    if text is None and file is None:
        raise UserError('give a text to score, or --file FILE: foreword score RUN "A text."')
    if text is not None and file is not None:
        raise UserError("give a text to score or --file FILE, not both")
    if file is not None and source is not None:
        raise UserError("--source requires one text; score the texts of a file one by one")
    if file is None:
        reading.refuse("requires --file")
    prompted = open_model(run, device).trained

    # A file: its totals.
    if file is not None:
        totals, counts = _score_file(reading.of(prompted), file, stride, quiet=quiet)
        if json:
            console.emit({**totals.as_row(), "read": asdict(counts)})
            return
        _show_totals(totals)
        console.facts({"files read": counts.files, **data_warnings(asdict(counts))})
        return

    # A text: each token, and the totals.
    score_of_text = scoring.score(prompted, text or "", source, stride)
    if json:
        tokens = [
            {"token": token, "nats": -value}
            for token, value in zip(
                score_of_text.tokens, score_of_text.log_probs.tolist(), strict=True
            )
        ]
        given = {"first_token_given": scoring.first_context(prompted)}
        console.emit({**score_of_text.totals.as_row(), **given, "scored": tokens})
        return
    _show_tokens(score_of_text)
    console.facts({"first token given": scoring.first_context(prompted)})
    _show_totals(score_of_text.totals)


def _score_file(
    prompted: PromptedModel, file: Path, stride: int | None, *, quiet: bool
) -> tuple[ScoreTotals, ReadCounts]:
    """Return the totals over a file or folder, and what was read of it."""
    from foreword.api.progress import progress_of
    from foreword.data.read_documents import find_files, read_documents
    from foreword.data.text_files import ReadCounts
    from foreword.errors import UserError
    from foreword.evaluation.perplexity import ScoreTotals
    from foreword.evaluation.scoring import measure_of, score_texts

    counts = ReadCounts()
    total = sum(path.stat().st_size for path in find_files([file], None, prompted.recipe.read))
    documents = read_documents([file], prompted.recipe.read, counts)
    totals = ScoreTotals(measure_of(prompted))
    read = done = 0  # bytes, about: of the texts read, and of those scored

    def texts() -> Iterator[str]:
        nonlocal read
        for document in documents:
            read = max(counts.bytes_read, read + len(document.text))
            yield document.text

    with progress_of(not quiet) as display:
        advance = display.stage("scoring")

        def show(tokens: int, share: float) -> None:
            advance(min(total, done + share * (read - done)), total, f"{tokens:,} tokens")

        for text_totals in score_texts(prompted, texts(), stride, show):
            totals += text_totals
            done = read
    if not totals.tokens:
        raise UserError(f"{file}: no token in it can be scored")
    return totals, counts


def _show_tokens(score: TextScore) -> None:
    rows = [
        [token, f"{-value:.3f}", f"{-value / math.log(2):.3f}", probability(math.exp(value))]
        for token, value in zip(score.tokens[:MAX_TOKENS_SHOWN], score.log_probs, strict=False)
    ]
    console.table("", ["token", "nats", "bits", "probability"], rows)
    if len(score.tokens) > MAX_TOKENS_SHOWN:
        more = len(score.tokens) - MAX_TOKENS_SHOWN
        console.say(f"and {more:,} more tokens; --json lists them all")


def _show_totals(totals: ScoreTotals) -> None:
    bits = totals.bits_per_byte
    per_byte = {} if totals.is_pseudo else {"bits per byte": bits}
    console.facts(
        {
            "measure": totals.measure,
            "nats": -totals.nats,
            "bits": -totals.bits,
            "pseudo-perplexity" if totals.is_pseudo else "perplexity": totals.perplexity,
            **per_byte,
            "tokens": totals.tokens,
            "of which ends of texts": totals.ends,
            "bytes": totals.bytes,
        }
    )
    if totals.documents > 1:
        console.facts({"documents": totals.documents})
    if totals.unscored:
        console.say(f"{totals.unscored:,} first tokens have no context and are not scored")
    if totals.unknown:
        console.say(unknown_share_note(totals.unknown / (totals.tokens - totals.ends)))
