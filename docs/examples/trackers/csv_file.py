"""Numbers in a CSV file, as an example of a tracker in a plug-in."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foreword.trackers._contract import TrackedRun, Tracker, scalars


@dataclass(frozen=True)
class CsvFile(Tracker):
    """Append a line `step,name,value` per number to `RUN/csv_file/numbers.csv`."""

    def open(self, folder: Path, name: str, identity: str) -> TrackedRun:
        """Make the folder."""
        del name, identity
        (folder / "csv_file").mkdir(exist_ok=True)
        return _Lines(folder / "csv_file" / "numbers.csv")


class _Lines(TrackedRun):
    def __init__(self, file: Path) -> None:
        self._file = file

    def configure(self, config: Mapping[str, Any]) -> None:
        """Do nothing; the recipe is in the run folder."""

    def record(self, record: Mapping[str, Any]) -> None:
        with self._file.open("a", encoding="utf-8", newline="") as file:
            rows = ([record["step"], name, value] for name, value in scalars(record).items())
            csv.writer(file).writerows(rows)

    def close(self, *, is_failed: bool) -> None:
        """Do nothing; the file is closed after each record."""
