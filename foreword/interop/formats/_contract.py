"""The contract of a format of `import` and `export`: a kind in `interop/formats/`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from foreword.runs.trained_model import TrainedModel
from foreword.settings import config, kinds


@dataclass(frozen=True)
class ExchangeResult:
    """A report of an export or import.

    Attributes:
        facts: names and values, for people and scripts; None if not known.
        notes: remarks for the user, one line each.
    """

    facts: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


class Format(Protocol):
    """A file format of other programs; its fields are its settings."""

    def write(self, trained: TrainedModel, out: Path) -> ExchangeResult:
        """Export a model.

        Raises:
            UserError: the format does not hold such models, or `out` cannot be written.
        """

    def read(self, source: str, run: Path) -> ExchangeResult:
        """Import a model as the run folder `run`, which must not exist yet.

        Raises:
            UserError: the source is broken, or the format is for export alone.
        """


def open_format(name: str, **settings: Any) -> Any:
    """Return the format called `name`, with the settings that are given.

    Raises:
        UserError: there is no such format, or it has no such setting.
    """
    kinds.file_of("interop/formats", name, "--format")
    options = {key: value for key, value in settings.items() if value}
    return config.build_kind(kinds.Part("interop/formats"), {"kind": name, **options}, "--format")
