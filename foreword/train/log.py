"""`metrics.jsonl`: one JSON object per line, appended during a run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foreword.disk import atomic, stored
from foreword.errors import UserError
from foreword.settings import config
from foreword.settings.ranges import is_curve

FILE = "metrics.jsonl"
STAGE = "stage"  # the kind of record that says what changes from a step on
STAGE_FIELDS = ("kind", "step", "segment", "stage", "stages")  # any other is a setting
# The fields that records share; any other is a component of the loss, or a mean reported with it.
STANDARD_FIELDS = (
    "kind",
    "offline",
    "step",
    "loss",
    "perplexity",
    "bits_per_byte",
    "is_bound",
    "predictions",
    "lr",
    "grad_norm",
    "tokens",
    "flops",
    "seconds",
    "tokens_per_second",
    "share_of_matmul",
    "skipped",
)


def append(run: Path, record: Mapping[str, Any]) -> None:
    """Append a record; numbers that are not finite become null, since JSON has none.

    Raises:
        UserError: the disk is full, or the run was removed.
    """
    atomic.require_not_removed(run)
    with atomic.user_errors(run / FILE), (run / FILE).open("a", encoding="utf-8") as file:
        file.write(stored.to_json(record) + "\n")


def read(run: Path) -> list[dict[str, Any]]:
    """Return the records; a last line that a kill cut short is skipped.

    Raises:
        UserError: another line is broken.
    """
    file = run / FILE
    if not file.is_file():
        return []
    lines = file.read_bytes().split(b"\n")  # not splitlines: texts may contain other separators
    records = []
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line.decode(), parse_constant=_refuse)
            fields = _RecordFields.__dataclass_fields__
            config.build(_RecordFields, {key: v for key, v in record.items() if key in fields})
            records.append(record)
        except (ValueError, AttributeError, OverflowError, RecursionError, UserError):
            if line.strip() and number < len(lines):
                raise UserError(
                    f"{file}:{number}: not JSON, or not a record; the file was damaged: fix or "
                    "delete the line"
                ) from None
    return records


@dataclass(frozen=True)
class _RecordFields:
    """The fields of a record that Foreword reads, with their types."""

    kind: str
    step: int
    loss: float | None = None
    perplexity: float | None = None
    bits_per_byte: float | None = None
    tokens: int = 0
    flops: float = 0.0
    seconds: float = 0.0
    tokens_per_second: float | None = None


def _refuse(text: str) -> None:
    raise ValueError(text)


def components(record: Mapping[str, Any]) -> dict[str, float]:
    """Return the components of a record's loss, and the means reported with it, by name."""
    others = {name: value for name, value in record.items() if name not in STANDARD_FIELDS}
    return {name: value for name, value in others.items() if isinstance(value, int | float)}


def in_words(changes: Mapping[str, Any]) -> str:
    """Return what changes, or a record of it, in words: `objective masked, layout encoder`."""
    return ", ".join(f"{key} {_shown(v)}" for key, v in changes.items() if key not in STAGE_FIELDS)


def _shown(value: Any) -> str:
    if is_curve(value):
        return " to ".join(map(_shown, value.values()))
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def rewind(run: Path, step: int, *, keeps_stages: bool = True) -> None:
    """Remove the records after `step`, which a resumed run writes again, but keep its stages.

    At which step a stage began is fixed once it has begun, also where hours are counted.
    """
    if not (run / FILE).is_file():
        return
    records = [
        record
        for record in read(run)
        if record["step"] <= step or (keeps_stages and record["kind"] == STAGE)
    ]
    atomic.write_text(run / FILE, "".join(stored.to_json(r) + "\n" for r in records))
