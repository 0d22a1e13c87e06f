"""The back-off path of an n-gram model."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from foreword.models.ngram import table_of
from foreword.serving.bodies import Body
from foreword.serving.looks._look import Compute, Few, Look, named, within
from foreword.serving.served import Served


@dataclass(frozen=True, kw_only=True)
class CountsBody(Body):
    """A text whose n-grams are looked up.

    Attributes:
        text: the text, of at most 256 tokens.
        top: followers of each context to name.
    """

    text: str
    top: Few = 5


def _counts(served: Served, body: CountsBody) -> Compute:
    model = served.trained
    ids = within(served, body.text)

    def compute() -> dict[str, Any]:
        whole = np.concatenate([model.prompt_prefix, ids])
        ways = table_of(model.model).back_off(whole, body.top)
        rows = []
        for n, way in enumerate(ways, 1):
            steps = []
            for step in way:
                context = whole[n - step.order + 1 : n].tolist()
                after = [named(model, i) | {"nats": nats} for i, nats in step.after]
                names = [model.tokenizer.token(i) for i in context]
                steps.append({**asdict(step), "context": names, "after": after})
            nats = sum(step.nats for step in way)
            rows.append({**named(model, int(whole[n])), "nats": nats, "steps": steps})
        return {"tokens": rows, "order": table_of(model.model).header.order}

    return compute


def _counts_ngrams(served: Served) -> None:
    if not served.trained.is_count_based:
        raise served.trained.unable("has no counts to back off to", "n-gram")


COUNTS = Look(CountsBody, _counts, _counts_ngrams, "Show how an n-gram model backs off")
