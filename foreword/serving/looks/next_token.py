"""The probabilities of the next token, and what is drawn."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
import torch
from annotated_types import Interval
from torch import Tensor

from foreword.data.rng import RowRng
from foreword.evaluation import decoding
from foreword.evaluation.sampling import Sampling, sample_tokens
from foreword.evaluation.starts import forbidden_tokens, next_token_batch
from foreword.nn.precision import widest
from foreword.serving.bodies import Body
from foreword.serving.looks._look import Compute, Look, named
from foreword.serving.served import Served, ids_of
from foreword.settings.ranges import (
    CountOrZero,
    PositiveShare,
    Seed,
    Temperature,
)

BINS = 48  # of tokens too unlikely to be named
Many = Annotated[int, Interval(ge=1, le=256)]


@dataclass(frozen=True, kw_only=True)
class NextBody(Body):
    """A text whose next token is looked at.

    Attributes:
        text: the prompt, or the source.
        tokens: ids that follow, generated so far.
        temperature: sampling temperature; 0 takes the likeliest token.
        top_k: sample from the k likeliest tokens; 0 for all.
        top_p: sample from the likeliest tokens that sum up to p.
        seed: the draws are those of a text generated with it.
        top: likeliest tokens to name.
    """

    text: str
    tokens: tuple[int, ...] = ()
    temperature: Temperature = 1.0
    top_k: CountOrZero = 0
    top_p: PositiveShare = 1.0
    seed: Seed = 1
    top: Many = 128


def _next(served: Served, body: NextBody) -> Compute:
    model = served.trained
    before = decoding.start_of(model, body.text)
    new = served.known(ids_of(body.tokens, "tokens"))
    start = replace(before, target=np.concatenate([before.target, new]))
    served.require_length(start)

    def compute() -> dict[str, Any]:
        batch = next_token_batch(model, [start]).to(model.device)
        logits = model.logits(model.run_backbone(batch).states[:, -1])
        nats = logits.log_softmax(-1)[0].double().cpu()
        stops = decoding.stops_of(model)
        logits = logits.masked_fill(forbidden_tokens(model, [before], stops), float("-inf"))
        drawn = int(sample_tokens(logits, *_draw(body, len(new), logits))[0])
        likeliest = nats.masked_fill(logits[0].isneginf().cpu(), float("-inf")).sort(
            descending=True
        )
        count = int(torch.isfinite(likeliest.values).sum())
        some = zip(
            likeliest.indices[: min(body.top, count)].tolist(),
            likeliest.values.tolist(),
            strict=False,
        )
        best = [named(model, i) | {"nats": n, "is_end": i in stops} for i, n in some]
        return {
            "text": decoding.text_of(model, before, new),
            "best": best,
            "rest": _binned(likeliest.values[len(best) : count]),
            "drawn": named(model, drawn) | {"nats": float(nats[drawn]), "is_end": drawn in stops},
            "entropy": float(-(nats.exp() * nats.clamp(min=-1e4)).sum()),
            "room": served.length + 1 - len(start.target),
        }

    return compute


def _draw(body: NextBody, count: int, logits: Tensor) -> tuple[Sampling, Tensor]:
    """Return the settings and the uniform number of the next token, as `decode` has them."""
    rng = RowRng(body.seed, np.zeros(1, np.int64))
    draws = [float(rng.uniform(1)[0, 0]) for _ in range(count + 1)]
    sampling = Sampling(1, body.temperature, body.top_k, body.top_p)
    return sampling, torch.tensor(draws[-1:], dtype=widest(logits.device), device=logits.device)


def _binned(nats: Tensor) -> list[tuple[float, int]]:
    """Return unlikely tokens in bins: the log of their mean probability, and their number."""
    if not len(nats):
        return []
    parts = nats.tensor_split(min(BINS, len(nats)))
    return [(float(part.logsumexp(0) - np.log(len(part))), len(part)) for part in parts]


NEXT = Look(
    NextBody,
    _next,
    Served.require_writes,
    "Give the probabilities of the next token",
)
