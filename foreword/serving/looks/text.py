"""A text read token by token, and layer by layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from annotated_types import Interval

from foreword.evaluation import reading
from foreword.runs.trained_model import TrainedModel
from foreword.serving.bodies import Body
from foreword.serving.looks._look import MOST_TOKENS, Compute, Few, Look, named
from foreword.serving.served import Served


@dataclass(frozen=True, kw_only=True)
class TextBody(Body):
    """A text to read token by token.

    Attributes:
        text: the text, of at most 256 tokens.
        source: the source that the text answers, for a model with one.
        top: likeliest tokens to name in each place.
    """

    text: str
    source: str | None = None
    top: Few = 8


@dataclass(frozen=True, kw_only=True)
class LensBody(Body):
    """A text to read layer by layer.

    Attributes:
        text: the text, of at most 256 tokens.
        source: the source that the text answers, for a model with one.
        top: likeliest tokens to name in each place after each layer.
    """

    text: str
    source: str | None = None
    top: Annotated[int, Interval(ge=1, le=8)] = 3


def _read(served: Served, body: TextBody | LensBody) -> Compute:
    model, by_layer = served.trained, isinstance(body, LensBody)

    def compute() -> dict[str, Any]:
        read = reading.read(model, body.text, body.top, body.source, MOST_TOKENS, by_layer=by_layer)
        expected = [[_expected(model, layer) for layer in t.layers] for t in read.tokens]
        tokens = [
            token | ({"layers": layers} if by_layer else (layers or [{}])[-1])
            for token, layers in zip(_tokens(model, body.text, read.tokens), expected, strict=True)
        ]
        given = _given(model, body.source)
        return {**read.totals.as_row(), "given": given, "tokens": tokens}

    return compute


def _given(model: TrainedModel, source: str | None) -> str:
    """Return what each token was predicted from."""
    if model.detects_replacements:
        return "whether each token is genuine, given all"
    if model.continues:
        return "the tokens before"
    return "the source and the tokens before" if source is not None else "all other tokens"


def _tokens(model: TrainedModel, text: str, read: Sequence[reading.ReadToken]) -> list[Any]:
    """Return the tokens with the characters that each adds, which make up the text."""
    rows, at = [], 0
    for n, token in enumerate(read):
        stop = max(at, token.stop)
        if n + 1 < len(read) and read[n + 1].start > stop:  # white space that no token has
            stop = read[n + 1].start
        row = {"id": token.id, "token": model.tokenizer.token(token.id), "text": text[at:stop]}
        rows.append(row | {"start": at, "stop": stop, "is_end": token.start == len(text) > 0})
        at = stop
    return rows


def _expected(model: TrainedModel, expected: reading.Expected) -> dict[str, Any]:
    best = [named(model, i) | {"nats": nats} for i, nats in expected.best]
    return {"nats": expected.nats, "rank": expected.rank, "best": best}


def _predicts(served: Served) -> None:
    if not served.trained.detects_replacements:
        served.trained.require_token_head()


TEXT = Look(TextBody, _read, _predicts, "Name what is expected at each token of a text")
LENS = Look(
    LensBody,
    _read,
    lambda served: reading.predicting_stack(served.trained),
    "Name what is expected at each token after each layer",
)
