"""Names, labels and texts stand on every page as they were written, whatever markup they hold."""

from __future__ import annotations

import json
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any

import pytest

from foreword.display.results import Facts, Part, Result, ResultTable
from foreword.reports import cleaning
from foreword.reports.comparison import write_comparison
from foreword.reports.page import page, write_page
from tests.reports import test_comparison, test_page

HOSTILE = (
    '<script>alert(1)</script> &amp; "><img src=x onerror=y> [bold]x[/bold] $x$ '
    "</title></style></svg>"
)
STEERS = {"kind", "axis", "side", "metric"}  # values that choose what is shown


def marked(value: Any, hostile: str) -> Any:
    """Return a JSON value with markup behind each string, but for those that steer."""
    if isinstance(value, str):
        return value + hostile
    if isinstance(value, list):
        return [marked(each, hostile) for each in value]
    if isinstance(value, dict):
        return {
            key: each if key in STEERS else marked(each, hostile) for key, each in value.items()
        }
    return value


def run_page(folder: Path, hostile: str) -> str:
    run = test_page.full_run(folder)
    for name in ("run.json", "evaluations/tune.json"):
        content = json.loads((run / name).read_text(encoding="utf-8"))
        (run / name).write_text(json.dumps(marked(content, hostile)), encoding="utf-8")
    rows = [{f"run{hostile}": hostile, "accuracy": 0.5}]
    probe = {"name": "x", "title": hostile, "rows": rows, "notes": [hostile], "command": hostile}
    (run / "evaluations" / "probe-x.json").write_text(json.dumps(probe), encoding="utf-8")
    text = json.dumps(hostile)
    (run / "recipe.toml").write_text(f'description = {text}\n[model]\nkind = "x"\n')
    samples = [{"prompt": hostile, "text": f"{hostile} more"}]
    record = {"kind": "samples", "step": 1, "samples": samples}
    probed = {"kind": "probes", "step": 1, "scores": {f"x{hostile}": {"y": 0.5}}}
    with (run / "metrics.jsonl").open("a") as metrics:
        metrics.write("\n" + "".join(json.dumps(each) + "\n" for each in (record, probed)))
    return write_page(run).read_text(encoding="utf-8")


def tuned_page(folder: Path, hostile: str) -> str:
    rows = [
        {"start": f"{start}{hostile}", "strategy": hostile, "accuracy": 0.5, "accuracy_std": 0.1}
        for start in ("pretrained", "from scratch")
    ]
    labels = [f"{name}{hostile}" for name in "ab"]
    tuned = {"name": f"tune-{hostile}", "task": "classify", "rows": rows, "labels": labels}
    tuned |= {"confusion": [[3, 1], [2, 2]], "title": hostile, "notes": [hostile]}
    suite_row = {"task": f"RTE{hostile}", "metric": "accuracy", "this model": 0.5}
    suite = {"name": "tune-suite", "task": "suite", "rows": [suite_row], "published": {}}
    suite |= {"published": {"BERT": hostile}, "tasks": {f"RTE{hostile}": tuned}}
    files = {"evaluations__tune_json": tuned, "evaluations__suite_json": suite}
    return write_page(test_page.write_run(folder, run_json={}, **files)).read_text(encoding="utf-8")


def comparison_page(folder: Path, hostile: str) -> str:
    folder.mkdir()
    content = marked(test_comparison.results(), hostile)
    content["metrics"] = {f"{task}{hostile}": m for task, m in content["metrics"].items()}
    for cell in content["cells"]:
        cell["tasks"] = {f"{task}{hostile}": each for task, each in cell["tasks"].items()}
    (folder / "results.json").write_text(json.dumps(content), encoding="utf-8")
    return write_comparison(folder).read_text(encoding="utf-8")


def cleaning_page(folder: Path, hostile: str) -> str:
    size = {"documents": 40, "bytes": 400, "words": 80}
    sample = {"text": hostile, "before": hostile, "note": hostile}
    step = {
        "kind": hostile,
        "read": size,
        "kept": size,
        "changed": 0,
        "not_judged": {hostile: 3},
        "dropped": {hostile: size},
        "languages": {"en": [40, 2], hostile: [40, 30]},
        "details": {hostile: hostile},
        "settings": {hostile: hostile, "languages": [hostile]},
        "samples": [
            sample | {"side": side, "source": hostile, "reason": hostile, "key": hostile}
            for side in cleaning.SIDES
        ],
    }
    read = size | {"empty_documents": 1, "replaced_bytes": 1, "skipped": {hostile: 2}}
    report = {"description": hostile, "sources": [hostile], "read": read, "kept": size, "signs": {}}
    cleaning.write_page(report | {"steps": [step]}, folder)
    return folder.read_text(encoding="utf-8")


class Shown(Result):
    """A result whose names and values are one text."""

    def __init__(self, text: str) -> None:
        self._text = text

    def tables(self) -> list[Part]:
        row = {self._text: self._text}
        return [Facts(row), ResultTable([row], self._text), self._text]


def notebook_page(folder: Path, hostile: str) -> str:
    del folder
    shown = Shown(hostile)._repr_html_()
    assert shown.count(escape(hostile)) == 4  # name, value, title, line; cells are cut
    return page(hostile, shown)


@pytest.mark.product(few=2)
@pytest.mark.parametrize(
    "make", [run_page, tuned_page, comparison_page, cleaning_page, notebook_page]
)
def test_pages_show_markup_as_text(make: Callable[[Path, str], str], tmp_path: Path) -> None:
    html = make(tmp_path / "made", HOSTILE)
    test_page.check(html)
    assert escape(HOSTILE) in html
    assert escape(escape(HOSTILE)) not in html
