"""The pretrained model's states and words, together."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from safetensors.numpy import load_file, save_file
from scipy.sparse import csr_matrix, hstack

from foreword.runs.trained_model import TrainedModel
from foreword.settings.ranges import Positive
from foreword.tuning.best.counts import Counts, FittedCounts
from foreword.tuning.best.material import Material
from foreword.tuning.candidates._contract import Fitted, Learner
from foreword.types import Array

INVERSE_PENALTIES = (0.1, 1.0, 10.0)
MOST_OUTPUTS = 100_000  # words or tokens, whose features and counts are sparse together
SCALES = "scales.safetensors"


@dataclass(frozen=True)
class FittedBoth(Fitted):
    """A linear model of words, then of features.

    Attributes:
        words: the counts of words, and the weights of all columns.
        mean: the mean of each feature, (features,).
        scale: what each feature is multiplied by, (features,).
    """

    words: FittedCounts
    mean: Array
    scale: Array

    def outputs(self, material: Material) -> Array:
        counts, linear = self.words.counts.features(material.counted), self.words.linear
        assert linear is not None
        return linear(_joined(counts, material.features, self.mean, self.scale))

    def save(self, folder: Path) -> None:
        self.words.save(folder)
        save_file({"mean": self.mean, "scale": self.scale}, folder / SCALES)


@dataclass(frozen=True)
class FeaturesAndCounts(Learner):
    """Logistic regression (ridge for numbers) on the model's states and on words, together.

    Attributes:
        norm: the length of a text's features beside that of its words, which is 1.
    """

    title: ClassVar[str] = "features and counts together"

    norm: Positive = 1.0

    def misplaced(self, material: Material) -> str:
        """An average of vectors has both."""
        return "vectors of both stand side by side anyway" if material.form == "vectors" else ""

    def unsuited(self, material: Material) -> str:
        """All features have to fit in memory."""
        if len(material.targets) > MOST_OUTPUTS or not material.has_features:
            return "the features do not fit in memory"
        return ""

    def fit(self, material: Material, seed: int) -> FittedBoth:
        counts, of_words = Counts.of(material, "words", 2, "tf_idf")
        features = material.features
        mean, deviation = features.mean(axis=0), features.std(axis=0) + 1e-6
        scale = (self.norm / (deviation * np.sqrt(features.shape[1]))).astype(np.float32)
        joined = _joined(of_words, features, mean, scale)
        linear = material.fit_linear(joined, INVERSE_PENALTIES)
        return FittedBoth(FittedCounts(counts, linear), mean, scale)

    @classmethod
    def read(cls, folder: Path, trained: TrainedModel) -> FittedBoth:
        return FittedBoth(FittedCounts.read(folder), **load_file(folder / SCALES))


def _joined(counts: Any, features: Array, mean: Array, scale: Array) -> Any:
    return hstack([counts, csr_matrix((features - mean) * scale)], format="csr")
