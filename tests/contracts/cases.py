"""What the contract tests run on; see `foreword.testing.cases`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from foreword.nn.model import Model
from foreword.testing import cases
from foreword.testing.cases import (
    FIRST,
    SEED,
    SIZE,
    is_scored,
    logits,
    rows,
    select_rows,
    tiny,
    vocab,
)

from ..readings import reading

__all__ = ["CASES", "FIRST", "SEED", "SIZE", "TRAINED", "Case", "fit", "is_scored", "logits"]
__all__ += ["rows", "select_rows", "tiny", "vocab"]


@dataclass(frozen=True)
class Case(cases.Case):
    """A case whose count-based models are trained too."""

    def build(self, position: str = "learned") -> Model:
        model = super().build(position)
        if self.is_count_based:
            fit(model)
        return model


def fit(model: Model) -> None:
    """Train a count-based model on random texts, special tokens taken for words."""
    texts = list(rows([[24]] * 100, seed=3).ids)
    known = replace(vocab(), is_special=np.zeros(SIZE, dtype=bool))
    with TemporaryDirectory() as folder:
        model.backbone.fit(reading(texts, known, Path(folder)))


CASES = [Case(case.objective, case.layout, case.model) for case in cases.find_cases()]
TRAINED = [case for case in CASES if not case.is_count_based]  # by gradients
