"""A comparison's page is made from its results alone and is self-contained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from foreword.cli.main import run
from foreword.errors import UserError
from foreword.reports.charts import scores_chart
from foreword.reports.comparison import is_comparison, write_comparison
from tests.reports.test_page import check, figures_of

CELLS = [f"cell <{n}>" for n in range(9)]


def scored(n: int, half: float | None) -> dict[str, Any]:
    return {"pretrained": {"mean": n / 10, "half": half, "count": 3}, "from scratch": None}


def results(**more: Any) -> dict[str, Any]:
    cells = [
        {"cell": cell, "tasks": {"CoLA": scored(n, 0.1 if n else None)}}
        for n, cell in enumerate(CELLS)
    ]
    runs = [{"cell": cell, "curve": [[1e15, 3.0], [2.5e15, 2.0]]} for cell in CELLS]
    chance_loss = {
        "cell": "", "task": "CoLA", "start": "majority class", "scores": {"matthews": 0.0},
    }  # fmt: skip
    table = {"title": "Fine-tuning", "columns": ["cell", "CoLA"], "rows": [[CELLS[0], "0.5 ± 0.1"]]}
    samples = {"title": "What they say", "columns": ["cell", "text"], "rows": [["x", "<script>"]]}
    return {
        "grid": {
            "description": "Which <b>objective</b>?",
            "cells": CELLS,
            "tasks": [{"name": "CoLA"}],
        },
        "axis": "FLOPs",
        "is_one_objective": False,
        "metrics": {"CoLA": "matthews"},
        "cells": cells,
        "runs": runs,
        "scores": [chance_loss],
        "tables": [table, samples],
        "notes": ["Losses do not compare."],
        **more,
    }


def write(folder: Path, **more: Any) -> Path:
    (folder / "results.json").write_text(json.dumps(results(**more)), encoding="utf-8")
    return folder


def test_the_page_shows_tables_curves_scores_and_notes(tmp_path: Path) -> None:
    page = write_comparison(write(tmp_path))
    html = page.read_text(encoding="utf-8")
    assert page == tmp_path / "report.html"
    assert check(html).tags >= {"table", "figure"} and len(figures_of(html)) == 2
    assert "Which &lt;b&gt;objective&lt;/b&gt;?" in html
    assert "9 cells and 1 task, at equal budgets." in html
    assert "0.5 ± 0.1" in html
    assert figures_of(html)[0]["x"] == {"label": "FLOPs"}
    assert "var(--cell7)" in html
    assert "&lt;script&gt;" in html
    assert "Losses do not compare." in html


def test_what_is_not_fine_tuned_is_no_task(tmp_path: Path) -> None:
    table = results()
    scores = {
        "CoLA": table["cells"][0]["tasks"]["CoLA"],
        "cloze": table["cells"][0]["tasks"]["CoLA"],
    }
    cells = [{**cell, "tasks": scores} for cell in table["cells"]]
    write(tmp_path, cells=cells, metrics={"CoLA": "matthews", "cloze": "matthews"})
    html = write_comparison(tmp_path).read_text(encoding="utf-8")
    assert "9 cells, 1 task and 1 other measure, at equal budgets." in html


def test_unequal_amounts_spent_get_a_logarithmic_axis(tmp_path: Path) -> None:
    runs = [
        {"cell": CELLS[0], "curve": [[0.02, 3.0]]},
        {"cell": CELLS[1], "curve": [[1.0, 3.0], [6.0, 2.0]]},
    ]
    write(tmp_path, runs=runs, axis="minutes", is_one_objective=True)
    html = write_comparison(tmp_path).read_text(encoding="utf-8")
    assert "nats per token" in html
    assert "each cell's own objective" not in html
    assert "FLOPs" not in html
    assert figures_of(html)[0]["x"] == {"label": "minutes", "log": True}


def test_without_tasks_and_runs_the_page_has_no_figures(tmp_path: Path) -> None:
    cells = [{"cell": cell, "tasks": {}} for cell in CELLS]
    write(tmp_path, grid={"cells": CELLS}, metrics={}, scores=[], runs=[], cells=cells, tables=[])
    html = write_comparison(tmp_path, tmp_path / "page.html").read_text(encoding="utf-8")
    assert "figure" not in check(html).tags
    assert "9 cells, at equal budgets." in html


def test_points_without_an_interval_are_drawn() -> None:
    nan = float("nan")
    rows = {"a": ((0.5, 0.1), (nan, nan)), "b": ((0.4, nan), (0.3, 0.1))}
    html = scores_chart("x", "f1", rows, ("full", "hollow"), marks=[(0.2, "")]).html()
    full, hollow = figures_of(html)[0]["series"]
    assert full["points"] == [[0.5, -0.16], [0.4, 0.84]] and full["ends"][1] == [None, None]
    assert hollow["points"][0][0] is None and hollow["colours"] == ["var(--cell0)", "var(--cell1)"]
    assert '<td class="n">0.5000</td>' in html and '<td class="n">–</td>' in html


def test_report_accepts_a_comparison(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert not is_comparison(tmp_path)
    assert run(["report", str(write(tmp_path)), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["page"] == str(tmp_path / "report.html")


@pytest.mark.parametrize("text", ["{", "[]", "{}"])
def test_broken_results_are_refused_in_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "results.json").write_text(text)
    with pytest.raises(UserError, match=r"results\.json: cannot be read; compare again"):
        write_comparison(tmp_path)
