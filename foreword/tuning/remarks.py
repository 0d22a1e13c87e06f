"""What a reader of the scores of fine-tuning has to know, a line each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from foreword.evaluation import margins
from foreword.formatting import quantity
from foreword.tuning.scores import Scores, metric_name, train_count


def remarks_on(
    content: Mapping[str, Any], rows: Sequence[Scores], *, shows_parameters: bool
) -> list[str]:
    """Return what the scores were made of, how they differ, and what went wrong.

    Args:
        content: the scores as in their file.
        shows_parameters: whether the table has the number of parameters trained.
    """
    count, first = content["examples"], rows[0].about
    unit, scored = "seed", f"{count['dev']:,} dev examples"
    if content["settings"].get("folds"):
        unit, scored = "fold", "each scored once by a network that learned from other folds"
    whole = f", {long:,} read in windows" if (long := count.get("in_windows", 0)) else ""
    lines = []
    for row in rows:
        if gamma := row.layers.get("layer_gamma"):
            mixed = (score.mean for name, score in row.layers.items() if name != "layer_gamma")
            shares = ", ".join(f"{share:.3f}" for share in mixed)
            of_layers = f"layer weights, embeddings first: {shares}; gamma {gamma.mean:.3f}"
            lines.append(f"{row.name}: {of_layers}")
    parts = [
        train_count(count),
        f"{scored}; {count['cut']:,} cut to {content['max_tokens']} tokens{whole}",
        f"{_counted(count['skipped'], 'row')} skipped (empty, or without a label); "
        f"{_counted(first['seeds'], unit)}",
    ]
    if "epochs" in first:
        when = "each at its best of at most" if "kept_epoch" in first else "scored after"
        parts.append(f"{when} {_counted(first['epochs'], 'epoch')}")
    about = ", ".join(parts)
    trained = None if shows_parameters else first.get("trained_parameters")
    about += "" if trained is None else f"; {quantity(trained)} parameters trained"
    about += f"; ± is the standard deviation over {unit}s" if first["seeds"] > 1 else ""
    lines += [about, *margins.lines(content.get("margins", ()))]
    lines += [*_calibration(content.get("calibration")), *content.get("notes", ())]
    if skipped := sum(row.about.get("skipped_steps", 0) for row in rows):
        lines.append(f"{skipped:,} non-finite steps skipped")
    return lines


def _calibration(fitted: Mapping[str, Any] | None) -> list[str]:
    """Return a line about what makes probabilities right; none if nothing was fitted."""
    if fitted is None:
        return []
    on = "in their folds" if fitted["on"] == "folds" else fitted["on"]
    what = [f"temperature {fitted['temperature']:.2f}"] if "temperature" in fitted else []
    what += ["a temperature for each part"] if "temperatures" in fitted else []
    what += ["a threshold for each label"] if "thresholds" in fitted else []
    return [
        f"probabilities fitted on {fitted['examples']:,} training examples {on} ("
        f"{', '.join(what)}): expected calibration error {fitted['error']:.3f}, before "
        f"{fitted['error_before']:.3f} ({fitted['bins']} bins)"
    ]


def candidate_rows(content: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return what each candidate of strategy best gave out of fold, and its part of the average."""
    metric = next(iter(Scores.of(content["rows"][0]).metrics))
    return [
        {"candidate": one["title"]}
        | (
            {metric_name(metric): "", "weight": "", "seconds": f"left out: {one['left_out']}"}
            if "left_out" in one
            else {
                metric_name(metric): f"{one[metric]:.3f}",
                "weight": f"{one['weight']:.2f}" if one["weight"] else "–",
                "seconds": f"{one['seconds']:.0f}",
            }
        )
        for one in content.get("candidates", ())
    ]


def setting_cells(rows: Sequence[Scores]) -> list[dict[str, str]]:
    """Return each row's learning rate, "" if it has none, and its number of trained parameters."""
    trained = [row.about.get("trained_parameters") for row in rows]
    if not any("lr" in row.about for row in rows):
        return [{} for _ in rows]
    cells = [{"lr": f"{row.about['lr']:.2g}" if "lr" in row.about else ""} for row in rows]
    if len(set(trained) - {None}) > 1:
        for row_cells, number in zip(cells, trained, strict=True):
            row_cells["trained parameters"] = "" if number is None else quantity(number)
    return cells


def label_rows(content: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the scores of each label as a row, where a text may have several; else none."""
    return [
        {"F1" if k == "f1" else k: v if isinstance(v, str) else f"{v:.3f}" for k, v in row.items()}
        for row in content.get("by_label", ())
    ]


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
