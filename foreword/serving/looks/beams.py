"""A text continued by beam search, with all its beams."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from annotated_types import Interval

from foreword.evaluation import beam, decoding
from foreword.evaluation.beam import Beams
from foreword.serving.bodies import Body
from foreword.serving.looks._look import Compute, Look, named
from foreword.serving.served import Served
from foreword.settings.ranges import (
    LengthPenalty,
)
from foreword.types import Array


@dataclass(frozen=True, kw_only=True)
class BeamBody(Body):
    """A text to continue or to translate by beam search.

    Attributes:
        text: the prompt, or the source.
        beams: number of beams; 1 is greedy decoding.
        length_penalty: 0 prefers short texts, 1 ranks by the mean of their tokens.
        max_tokens: the most new tokens.
    """

    text: str
    beams: Annotated[int, Interval(ge=1, le=16)] = 4
    length_penalty: LengthPenalty = 1.0
    max_tokens: Annotated[int, Interval(ge=1, le=64)] = 12


def _beam(served: Served, body: BeamBody) -> Compute:
    model = served.trained
    start = decoding.start_of(model, body.text)
    served.require_length(start)
    beams = Beams(body.beams, body.length_penalty, body.max_tokens)

    def compute() -> dict[str, Any]:
        nodes: dict[tuple[int, ...], dict[str, Any]] = {}

        def add(ids: Sequence[int], nats: Sequence[float]) -> int:
            """Return the number of the node of some tokens, added with those before it."""
            for n in range(1, len(ids) + 1):
                key = tuple(ids[:n])
                if key not in nodes:
                    parent = nodes[key[:-1]]["node"] if n > 1 else None
                    total = float(np.sum(nats[:n]))
                    node = {"node": len(nodes), "parent": parent, "step": n, "total": total}
                    nodes[key] = node | named(model, ids[n - 1]) | {"nats": float(nats[n - 1])}
            return int(nodes[tuple(ids)]["node"])

        def watch(ids: Array, nats: Array) -> None:
            for row, of_row in zip(ids, nats, strict=True):
                for one_beam, values in zip(row, of_row, strict=True):
                    if np.isfinite(values).all():
                        add(one_beam.tolist(), values.tolist())

        found = beam.search(model, [start], beams, decoding.stops_of(model), watch=watch)[0]
        texts = []
        for text in found:
            assert text.log_probs is not None
            ids, nats = text.ids.tolist(), text.log_probs.tolist()
            row = {"text": decoding.text_of(model, start, text.ids), "stopped": text.stopped}
            sums = {"score": beams.score(text), "nats": float(text.log_probs.sum())}
            texts.append({**row, **sums, "node": add(ids, nats) if ids else None})
        return {"nodes": list(nodes.values()), "texts": texts}

    return compute


BEAM = Look(
    BeamBody,
    _beam,
    Served.require_writes,
    "Continue a text by beam search, with all its beams",
)
