"""A source and a target whose words are aligned."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any

from annotated_types import Interval

from foreword.evaluation import alignment, decoding, translation
from foreword.evaluation.beam import Beams
from foreword.serving.bodies import Body
from foreword.serving.looks._look import Compute, Look
from foreword.serving.served import Served
from foreword.settings.ranges import (
    Count,
)


@dataclass(frozen=True, kw_only=True)
class AlignmentBody(Body):
    """A source and a target, whose words are aligned by attention.

    Attributes:
        text: the source.
        target: its target; default: the model's own, by beam search.
        layer: a layer of the decoder, from 1; default: the last.
        beams: number of beams.
        max_tokens: the most tokens of the model's own target.
    """

    text: str
    target: str | None = None
    layer: Count | None = None
    beams: Annotated[int, Interval(ge=1, le=16)] = 4
    max_tokens: Annotated[int, Interval(ge=1, le=256)] = 60


def _align(served: Served, body: AlignmentBody) -> Compute:
    model = served.trained
    alignment.layer_of(model, body.layer)
    served.require_length(decoding.start_of(model, body.text))
    beams = Beams(body.beams, tokens=min(body.max_tokens, served.length - 1))

    def compute() -> dict[str, Any]:
        target = body.target
        if target is None:
            target = next(translation.translate(model, [body.text], beams))
        aligned = alignment.align(model, body.text, target, body.layer)
        weights = aligned.weights.round(4).tolist()
        return {"text": target, **asdict(replace(aligned, weights=weights))}

    return compute


ALIGNMENT = Look(
    AlignmentBody,
    _align,
    lambda served: alignment.layer_of(served.trained),
    "Align the words of a source and its target",
)
