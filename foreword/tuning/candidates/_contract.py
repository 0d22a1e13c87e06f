"""The contract of candidates, the kinds in `tuning/candidates/`: ways to learn a task from labels.

`--strategy best` tries each on the training examples alone, by cross-validation, and keeps those
that predict best; see `foreword.tuning.best.choosing`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from foreword.runs.trained_model import TrainedModel
from foreword.settings.ranges import Ranged
from foreword.tuning.best.material import Material
from foreword.types import Array


class Fitted(ABC):
    """What a candidate learned."""

    @abstractmethod
    def outputs(self, material: Material) -> Array:
        """Return the outputs for examples, (outputs, labels) float64, each by itself.

        Those of classes and of sets of labels are logits, of numbers the number (outputs, 1), of
        options a score each (outputs, 1), of positions one as start and one as end (outputs, 2),
        of texts to compare a vector each.
        """

    def answering(self, settings: Mapping[str, Any]) -> Fitted:
        """Return the same, to be saved with these settings of the task's answers."""
        return self

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write it to a new folder; what it reads of the pretrained model is kept elsewhere."""


@dataclass(frozen=True)
class Learner(Ranged, ABC):
    """A way to learn a task from labelled texts: a kind in `tuning/candidates/`.

    Attributes:
        title: what tables call it.
        reads_model: whether it reads the pretrained model; others count words alone.
    """

    title: ClassVar[str]
    reads_model: ClassVar[bool] = True

    def misplaced(self, material: Material) -> str:
        """Return why the candidate is for other tasks; "" if it is for this one."""
        return ""

    def unsuited(self, material: Material) -> str:
        """Return why the number or size of these examples rules it out; "" if it does not."""
        return ""

    @abstractmethod
    def fit(self, material: Material, seed: int) -> Fitted:
        """Learn from examples."""

    @classmethod
    @abstractmethod
    def read(cls, folder: Path, trained: TrainedModel) -> Fitted:
        """Read what `Fitted.save` wrote."""
