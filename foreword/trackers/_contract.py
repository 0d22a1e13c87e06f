"""The contract of trackers, the kinds in `trackers/`: where a run's records go besides its log."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from foreword.settings.ranges import Ranged


class Tracker(Ranged, ABC):
    """The settings of a tracker.

    Attributes:
        package: the package that it imports; "" for none.
    """

    package: ClassVar[str] = ""

    @abstractmethod
    def open(self, folder: Path, name: str, identity: str) -> TrackedRun:
        """Begin to track a run, or continue it where the identity is known.

        Args:
            folder: the run folder; the tracker writes to one folder of its own in it.
            name: name of the run, for display.
            identity: identifier of the run, the same each time that it is resumed.

        Raises:
            Exception: it cannot be tracked; nothing has been trained yet, and nothing will be.
        """


class TrackedRun(ABC):
    """A run that is being tracked by one process.

    An exception of a method ends the tracking, and never the training.
    """

    @abstractmethod
    def configure(self, config: Mapping[str, Any]) -> None:
        """Take the recipe as a table, once, before the first record."""

    @abstractmethod
    def record(self, record: Mapping[str, Any]) -> None:
        """Take a record of `metrics.jsonl`, each once; it is not changed.

        Args:
            record: `kind` (train, heldout, samples), `step`, and what was measured. Within a kind
                steps only rise.
        """

    @abstractmethod
    def close(self, *, is_failed: bool) -> None:
        """End the tracking; records are written out.

        Args:
            is_failed: whether the run ended by an error.
        """


def scalars(record: Mapping[str, Any]) -> dict[str, float]:
    """Return the finite numbers of a record by name, such as `train/loss`; the step is not one."""
    named = dict(record)
    for name, loss in named.pop("sources", {}).items():  # of a mixture
        named[f"sources/{name}"] = loss
    return {
        f"{record['kind']}/{name}": value
        for name, value in named.items()
        if name not in ("kind", "step")
        and isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
    }


def samples(record: Mapping[str, Any]) -> Sequence[Mapping[str, str]]:
    """Return the samples of a record, `{"prompt": ..., "text": ...}` each; most have none."""
    samples: Sequence[Mapping[str, str]] = record.get("samples", ())
    return samples
