"""The pretrained model's states as features."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from safetensors.numpy import load_file, save_file

from foreword.runs.trained_model import TrainedModel
from foreword.tuning.best.linear import LinearMap
from foreword.tuning.best.material import Material
from foreword.tuning.candidates._contract import Fitted, Learner
from foreword.types import Array

INVERSE_PENALTIES = (1e-4, 1e-3, 1e-2, 0.1)
FILE = "linear.safetensors"


@dataclass(frozen=True)
class FittedFeatures(Fitted):
    """A linear model of pooled features."""

    linear: LinearMap

    def outputs(self, material: Material) -> Array:
        return self.linear(material.features)

    def save(self, folder: Path) -> None:
        folder.mkdir()
        save_file(self.linear._asdict(), folder / FILE)


@dataclass(frozen=True)
class PooledFeatures(Learner):
    """Logistic regression (ridge for numbers) on the model's states, which stay as pretrained.

    The states of all layers are pooled by the mean, and stand side by side. Of pairs, the
    difference and the product of both texts' states are features too (Conneau et al. 2017).

    Also called: linear probe, feature extraction.
    Reference: Peters et al. 2019, "To tune or not to tune?"
    """

    title: ClassVar[str] = "features of the model"

    def unsuited(self, material: Material) -> str:
        """All features have to fit in memory."""
        return "" if material.has_features else "the features do not fit in memory"

    def fit(self, material: Material, seed: int) -> FittedFeatures:
        return FittedFeatures(material.fit_linear(material.features, INVERSE_PENALTIES))

    @classmethod
    def read(cls, folder: Path, trained: TrainedModel) -> FittedFeatures:
        return FittedFeatures(LinearMap(**load_file(folder / FILE)))
