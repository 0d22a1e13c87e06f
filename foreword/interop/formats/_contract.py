"""What `import` and `export` ask of a format: a kind in `interop/formats/`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from foreword.runs.trained_model import TrainedModel


@dataclass(frozen=True)
class ExchangeResult:
    """What was exported or imported.

    Attributes:
        facts: names and values, for people and scripts; those that are None are not known.
        notes: what is worth knowing, a line each.
    """

    facts: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


class Format(Protocol):
    """A form in which models travel; its fields are its settings."""

    def write(self, trained: TrainedModel, out: Path) -> ExchangeResult:
        """Exports a model.

        Raises:
            UserError: the format does not hold such models, or `out` cannot be written.
        """

    def read(self, source: str, run: Path) -> ExchangeResult:
        """Imports a model as the run folder `run`, which is not there yet.

        Raises:
            UserError: it is broken, or the format is for export alone.
        """
