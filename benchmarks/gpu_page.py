"""The results of `benchmarks/gpu.py` as one page of Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

AIMS = (
    "Aims: 50 % of the bf16 peak for bert_base and gpt2_small; twice the Trainer's speed; every "
    "test passed; a loss that falls."
)


def page(results: Mapping[str, Any]) -> str:
    """Return the page.

    Args:
        results: the contents of `results.json`: `parts` by name, each with `about`, `outcome`,
            `records` and, if it failed, `log`.
    """
    parts: Mapping[str, Mapping[str, Any]] = results["parts"]
    lines = [f"# Foreword on {_machine(parts)}", "", AIMS, "", *_summary(parts), ""]
    for name, part in parts.items():
        seconds = f", {part['seconds']:.0f} s" if "seconds" in part else ""
        lines += [f"## {part['about']}", "", f"`{name}`: {part['outcome']}{seconds}.", ""]
        lines += _tables(part["records"])
        if part.get("log"):
            lines += ["The end of its log:", "", "```", part["log"].strip(), "```", ""]
    return "\n".join(lines)


def _machine(parts: Mapping[str, Mapping[str, Any]]) -> str:
    for record in parts.get("machine", {}).get("records", []):
        if "name" in record:
            return str(record["name"])
    return "an unknown machine"


def _summary(parts: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return a line for each figure that has an aim."""
    lines = []
    for name, part in parts.items():
        steps = [r for r in part["records"] if r.get("share_of_peak")]
        if steps:
            best = max(steps, key=lambda r: r["share_of_peak"])
            lines.append(
                f"- {name}: {best['share_of_peak']:.0%} of the peak, {best['tokens_per_second']:,} "
                f"tokens/s ({best['case']})"
            )
        ratios = [r for r in part["records"] if r.get("ours_is")]
        lines += [f"- {name}: {r['ours_is']:.2f} times {r['case']}" for r in ratios]
        counts = [r for r in part["records"] if r.get("kind") == "counts"]
        lines += [f"- {name}: {r['outcome']}" for r in counts[-1:]]
        if part["outcome"] not in ("done", "running"):
            lines.append(f"- {name}: {part['outcome']}")
    return lines


def _tables(records: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the records of each `kind` as a table, and long texts by themselves.

    Of records with the same `kind` and `key` the last one counts.
    """
    groups: dict[str, dict[Any, Mapping[str, Any]]] = {}
    lines: list[str] = []
    for number, record in enumerate(records):
        if "text" in record:
            lines += [f"{record['kind']}:", "", "```", record["text"].rstrip(), "```", ""]
            continue
        groups.setdefault(record["kind"], {})[record.get("key", number)] = record
    for group in groups.values():
        rows = list(group.values())
        columns = list(dict.fromkeys(c for r in rows for c in r if c not in ("kind", "key")))
        lines += [_row(columns), _row("---" for _ in columns)]
        lines += [_row(_cell(row.get(column)) for column in columns) for row in rows]
        lines.append("")
    return lines


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    if isinstance(value, int):
        return f"{value:,}"
    return str(value).replace("|", "\\|").replace("\n", " ")
