"""Plateaus of known curves, and whether smaller sizes flatten sooner."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import foreword
from foreword.cli.main import run
from foreword.scaling.plateaus import find_plateaus, trend_of
from foreword.scaling.runs import read_runs

SIZES = (1e5, 3e5, 1e6, 3e6)


def rows_of(
    power: float = 0.5, noise: float = 0.0, seeds: int = 1, last: float = 1e8
) -> list[dict[str, Any]]:
    """Curves 2 + B / D^0.4 whose last per cent a doubling takes off at 1e7 (N / 1e6)^power."""
    rng = np.random.default_rng(0)
    rows = []
    for n in SIZES:
        plateau = 1e7 * (n / 1e6) ** power
        b = plateau**0.4 * 0.01 * 2 / (0.4 * math.log(2) - 0.01)
        for seed in range(seeds):
            for d in np.geomspace(last / 100, last, 9):
                loss = (2 + b * d**-0.4) * (1 + noise * rng.normal())
                rows.append(
                    {"parameters": n, "tokens": d, "loss": loss, "run": f"{n}-{seed}", "seed": seed}
                )
    return rows


@pytest.mark.parametrize("seeds", [1, 3])
def test_known_plateaus_are_found_with_intervals(seeds: int) -> None:
    exact = find_plateaus(read_runs(rows_of()), 0.01)
    truth = [1e7 * (n / 1e6) ** 0.5 for n in SIZES]
    assert [one.plateau for one in exact] == pytest.approx(truth, rel=0.02)
    found = find_plateaus(read_runs(rows_of(noise=1e-3, seeds=seeds)), 0.01, 300)
    assert [one.seeds for one in found] == [seeds] * 4
    inside = [one.interval is not None and one.interval[0] <= t <= one.interval[1]
              for one, t in zip(found, truth, strict=True)]  # fmt: skip
    assert sum(inside) >= 3


@pytest.mark.parametrize(
    ("power", "noise", "last", "verdict"),
    [
        (0.5, 1e-4, 1e8, "smaller sizes flatten sooner: plateau as parameters^0.50"),
        (-0.5, 1e-4, 1e8, "smaller sizes flatten later"),
        (0.0, 3e-4, 1e8, "cannot be told: plateau as parameters^"),
        (0.5, 1e-4, 1e6, "within their curves: 0, of 3 needed"),
    ],
)
def test_the_trend_is_told_or_not(power: float, noise: float, last: float, verdict: str) -> None:
    found = find_plateaus(read_runs(rows_of(power, noise, last=last)), 0.01, 300)
    assert verdict in trend_of(found).verdict
    if last < 1e7:
        assert all("not reached by 1 M tokens" in one.mark for one in found)


def test_by_default_all_sizes_reach_the_threshold() -> None:
    found = find_plateaus(read_runs(rows_of()), resamples=3)
    slowest = max(found, key=lambda one: one.last_slope)
    assert found[0].threshold == pytest.approx(slowest.last_slope, rel=0.11)
    assert all(one.is_reached for one in found) and trend_of(found).sizes == 4


def test_the_command_writes_a_page_and_a_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "curves.jsonl"
    # A size of few measurements, and one that reads its text again, are marked.
    more = [{**row, "parameters": 9e6, "run": "few"} for row in rows_of()[:2]]
    rows = [{**row, "epochs": 1.0} for row in [*rows_of(noise=1e-4), *more]]
    rows += [{**row, "parameters": 2e7, "run": "again", "epochs": 2.0} for row in rows_of()[:9]]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = ["--threshold", "0.01", "--resamples", "50"]
    assert run(["scale", "plateaus", str(file), *options, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [size["mark"] for size in found["sizes"]] == [""] * 4 + ["measurements: 2, of 4 needed"]
    assert found["trends"]["all"]["exponent"] == pytest.approx(0.5, abs=0.02)
    out = tmp_path / "curves-plateaus"
    assert (out / "plateaus.html").read_text(encoding="utf-8").count("<figure") == 2
    assert len((out / "plateaus.csv").read_text().splitlines()) == 6
    with pytest.raises(foreword.UserError, match="a curve needs 4 measurements of a size"):
        foreword.scale.plateaus(_written(tmp_path, [row for row in rows if row["run"] == "few"]))


def _written(folder: Path, rows: list[dict[str, Any]]) -> Path:
    file = folder / "few.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file
