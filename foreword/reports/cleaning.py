"""The page of a cleaning: what each step read, dropped and changed, with samples of both sides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from html import escape
from itertools import groupby
from pathlib import Path
from typing import Any

from foreword.cleaning.signs import STEPS
from foreword.disk import atomic
from foreword.formatting import byte_size, cell, quantity
from foreword.reports import fragments
from foreword.reports.page import page
from foreword.reports.tables import Table, key_value_table

Report = Mapping[str, Any]
MANY = 0.2  # the share of a language's documents from which losing them is noted
LARGE = 0.01  # the share of the documents from which a group of duplicates is noted
FEW = 20  # documents of a language below which its share says nothing
EXPECTED = (
    "By the share of words replaced at random: the sequences of words that both "
    "texts share, of all of both, and the share of such copies that is found. Short texts vary "
    "more."
)
SIDES = {
    "dropped": "Dropped",
    "dropped, near": "Dropped, but kept if thresholds were 20 % laxer",
    "kept, near": "Kept, but dropped if thresholds were 20 % stricter",
    "changed": "Changed",
    "duplicates": "Groups of duplicates",
}


def write_page(report: Report, path: Path) -> None:
    """Write the page of a cleaning.

    Args:
        report: the content of `clean.json`.

    Raises:
        UserError: it cannot be written.
    """
    sections = [_head(report), _steps(report), _by_language(report)]
    sections += [_step(number, step) for number, step in enumerate(report["steps"])]
    atomic.write_text(path, page("Cleaned text", "\n".join(filter(None, sections))))


def rows_of(report: Report) -> list[dict[str, Any]]:
    """Return the table of the steps: what each read, dropped and changed."""
    rows = [
        {
            "step": _name(step),
            "documents": step["read"]["documents"],
            "dropped": _lost(step, "documents"),
            "share": _percent(_lost(step, "documents"), step["read"]["documents"]),
            "changed": step["changed"],
            "not judged": sum(step["not_judged"].values()),
            "words": step["kept"]["words"] - step["read"]["words"],
        }
        for step in report["steps"]
    ]
    read, kept = report["read"], report["kept"]
    lost = read["documents"] - kept["documents"]
    last = {
        "step": "left",
        "documents": kept["documents"],
        "dropped": lost,
        "share": _percent(lost, read["documents"]),
        "changed": None,
        "not judged": None,
        "words": kept["words"] - read["words"],
    }
    rows.append(last)
    silent = [name for name in ("changed", "not judged") if not any(row[name] for row in rows)]
    return [{name: row[name] for name in row if name not in silent} for row in rows]


def notes(report: Report) -> list[str]:
    """Return what a reader should know that the table does not say."""
    lines = []
    read = report["read"]
    if read["empty_documents"]:
        lines.append(f"{cell(read['empty_documents'])} documents had no text and were not counted")
    if read["replaced_bytes"]:
        lines.append(f"{cell(read['replaced_bytes'])} bytes were not UTF-8 and were replaced")
    for name, what in (
        ("skipped", "files that no reader reads were skipped"),
        ("left", "pages of web archives were not read"),
    ):
        if reasons := ", ".join(f"{cell(n)} {why}" for why, n in _most(read.get(name, {}))):
            lines.append(f"{what}: {reasons}")
    kinds = [step["kind"] for step in report["steps"]]
    for sign, step in STEPS.items():
        if number := report["signs"].get(sign):
            hint = "" if step in kinds else f" (the step {step} treats them)"
            lines.append(f"texts left that {sign}: {cell(number)}{hint}")
    for step in report["steps"]:
        largest = step.get("largest_group", 0)
        if largest >= FEW and largest > LARGE * step["read"]["documents"]:
            share = _percent(largest, step["read"]["documents"])
            lines.append(
                f"{_name(step)} kept one text of a group of {cell(largest)}, {share} of all: see "
                "the first of its groups on the page"
            )
        if step["not_judged"]:
            codes = ", ".join(f"{code} {cell(n)}" for code, n in _most(step["not_judged"]))
            languages = ", ".join(step["settings"].get("languages", ()))
            lines.append(
                f"{_name(step)} judges {languages} alone; passed without being judged: {codes}"
            )
        for code, (judged, dropped) in step["languages"].items():
            if code != "en" and judged >= FEW and dropped > MANY * judged:
                share = _percent(dropped, judged)
                lines.append(f"{_name(step)} dropped {share} of {cell(judged)} documents in {code}")
    if not report["kept"]["documents"]:
        lines.append("nothing is left: every document was dropped")
    return lines


def _head(report: Report) -> str:
    """Return the title, the sources and the key numbers."""
    read, kept = report["read"], report["kept"]
    sources = ", ".join(report["sources"])
    description = f"{report['description']}. " if report["description"] else ""
    pairs = [
        ("documents read", quantity(read["documents"])),
        ("documents kept", quantity(kept["documents"])),
        ("of the documents dropped", _percent(_difference(report, "documents"), read["documents"])),
        ("text read", byte_size(read["bytes"])),
        ("text kept", byte_size(kept["bytes"])),
        ("words kept", quantity(kept["words"])),
    ]
    remarks = "".join(fragments.note(f"{note}.") for note in notes(report))
    return (
        f'<h1>Cleaned text</h1>\n<p class="lead">{escape(description)}From {escape(sources)}.</p>\n'
        f"{fragments.tiles(pairs)}\n{remarks}"
    )


def _steps(report: Report) -> str:
    return f"<h2>Steps</h2>\n{_table(rows_of(report))}"


def _by_language(report: Report) -> str:
    """Return the documents of each language, judged and dropped by each step; "" if unknown."""
    steps = [(n, step) for n, step in enumerate(report["steps"]) if step["languages"]]
    codes = list(dict.fromkeys(code for _, step in steps for code in step["languages"]))
    if len(codes) < 2:
        return ""
    rows = []
    for code in codes[:12]:
        row: dict[str, Any] = {"language": code}
        for number, step in steps:
            judged, dropped = step["languages"].get(code, (0, 0))
            text = f"{dropped:,} of {judged:,}" if judged else "not judged"
            row[f"{number}. {_name(step)}"] = text
        rows.append(row)
    more = fragments.note(f"And {len(codes) - 12} more languages." if len(codes) > 12 else "")
    table = Table.of_records(rows).html()
    return f"<h2>Dropped, of the documents judged, by language</h2>\n{table}{more}"


def _step(number: int, step: Report) -> str:
    """Return the section of a step: its reasons, its settings, its samples."""
    parts = [f"<h2>{number}. {escape(_name(step))}</h2>"]
    if step["dropped"]:
        rows = [
            {
                "reason": reason,
                "documents": size["documents"],
                "share": _percent(size["documents"], step["read"]["documents"]),
                "bytes": size["bytes"],
                "words": size["words"],
            }
            for reason, size in step["dropped"].items()
        ]
        parts.append(_table(rows))
    else:
        parts.append(fragments.note("Dropped nothing."))
    if step["details"]:
        parts.append(f'<div class="card">{key_value_table(step["details"])}</div>')
    if step.get("expected"):
        table = _table([{n: _percent(v, 1) for n, v in row.items()} for row in step["expected"]])
        expected = fragments.note(EXPECTED) + table
        parts.append(fragments.folded("Copies that these settings find", expected))
    if step["settings"]:
        parts.append(fragments.folded("Settings", key_value_table(step["settings"])))
    samples = sorted(step["samples"], key=lambda sample: list(SIDES).index(sample["side"]))
    for side, group in groupby(samples, key=lambda sample: sample["side"]):
        parts.append(fragments.folded(SIDES[side], "".join(_samples(side, list(group)))))
    return "\n".join(parts)


def _samples(side: str, samples: Sequence[Report]) -> Iterator[str]:
    """Yield the samples of a side, by reason, duplicates by group."""
    for name, same in groupby(
        samples, key=lambda sample: sample["key" if side == "duplicates" else "reason"]
    ):
        if side != "duplicates" and name:
            yield f"<h3>{escape(name)}</h3>"
        for number, sample in enumerate(same):
            texts = [escape(sample["text"])]
            if "before" in sample:
                texts = [f"<b>before</b> {escape(sample['before'])}", f"<b>after</b> {texts[0]}"]
            note = f" · {escape(sample['note'])}" if "note" in sample else ""
            source = f'<span class="from above">{escape(sample["source"])}{note}</span>'
            is_same_group = side == "duplicates" and number > 0
            css_class = "sample joined" if is_same_group else "sample"
            yield f'<div class="{css_class}">{source}{"<br>".join(texts)}</div>'


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return records as a table whose shares are aligned as numbers are."""
    table = Table.of_records(rows)
    numbers = [n or name == "share" for n, name in zip(table.is_number, table.columns, strict=True)]
    return replace(table, is_number=numbers).html()


def _name(step: Report) -> str:
    return str(step["kind"]).replace("_", " ")


def _lost(step: Report, unit: str) -> int:
    return sum(size[unit] for size in step["dropped"].values())


def _difference(report: Report, unit: str) -> int:
    return int(report["read"][unit] - report["kept"][unit])


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "–"


def _most(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    """Return the largest counts, and the sum of the others."""
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    rest = sum(count for _, count in ordered[6:])
    return ordered[:6] + ([("others", rest)] if rest else [])
