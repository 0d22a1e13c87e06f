"""What a reader of the scores of fine-tuning has to know, a line each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from foreword.formatting import quantity
from foreword.tuning import margins
from foreword.tuning.result import Row, train_count


def remarks_on(
    content: Mapping[str, Any], rows: Sequence[Row], *, shows_parameters: bool
) -> list[str]:
    """Return what the scores were made of, how they differ, and what went wrong.

    Args:
        content: the scores as in their file.
        rows: its rows, one per variant and baseline.
        shows_parameters: whether the table has the number of parameters trained.
    """
    count, first = content["examples"], rows[0]
    lines = [f"{row_name(row)}: {layers}" for row in rows if (layers := _layers(row))]
    parts = [
        train_count(count),
        f"{count['dev']:,} dev examples; {count['cut']:,} cut to {content['max_tokens']} tokens",
        f"{count['skipped']:,} rows skipped (empty, or without a label); "
        f"{_counted(first['seeds'], 'seed')}",
        _scored_when(first),
    ]
    about = ", ".join(parts)
    trained = None if shows_parameters else first.get("trained_parameters")
    about += "" if trained is None else f"; {quantity(trained)} parameters trained"
    about += "; ± is the standard deviation over seeds" if first["seeds"] > 1 else ""
    lines += [about, *margins.lines(content.get("margins", ())), *content.get("notes", ())]
    if skipped := sum(row.get("skipped_steps", 0) for row in rows):
        lines.append(f"{skipped:,} non-finite steps skipped")
    return lines


def row_name(row: Mapping[str, Any]) -> str:
    """Return the name of a variant, or of a baseline."""
    return f"{row['start']}, {row['strategy']}" if "lr" in row else str(row["strategy"])


def _layers(row: Mapping[str, Any]) -> str:
    """Return the learned weights of the scalar mix; "" for a row without one."""
    learned = {k: v for k, v in row.items() if k.startswith("layer_") and not k.endswith("_std")}
    gamma = learned.pop("layer_gamma", None)
    if gamma is None:
        return ""
    shares = ", ".join(f"{share:.3f}" for share in learned.values())
    return f"layer weights, embeddings first: {shares}; gamma {gamma:.3f}"


def _scored_when(row: Mapping[str, Any]) -> str:
    """Return which epoch's scores a row has."""
    if "kept_epoch" in row:
        return f"each at its best of at most {_counted(row['epochs'], 'epoch')}"
    return f"scored after {_counted(row['epochs'], 'epoch')}"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
