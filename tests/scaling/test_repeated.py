"""Laws of text read several times, against known constants."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from foreword.errors import UserError
from foreword.scaling.fit import fit_runs
from foreword.scaling.repeated import FORMS, effective, repeated_losses
from foreword.scaling.runs import read_runs
from foreword.scaling.surface import NAMES

BASE = (1.869, 520.8, 1487.7, 0.3527, 0.3527)
KNOWN = {"half_life": (15.39, 5.31), "additive": (0.02, 0.6, 1.2)}


def rows_of(form: str, epochs: tuple[float, ...] = (1, 3, 10, 30, 80)) -> list[dict[str, Any]]:
    values = np.array([*BASE, *KNOWN[form]])
    rows = []
    for n in np.geomspace(1e7, 3e9, 6):
        for unique in (1e8, 1e9, 1e10):
            for count in epochs:
                run = (np.array([x]) for x in (n, unique * count, unique))
                loss = float(repeated_losses(form, values, *run)[0])
                row = {"parameters": n, "tokens": unique * count, "epochs": count, "loss": loss}
                rows.append(row)
    return rows


@pytest.mark.parametrize("form", FORMS)
def test_known_constants_are_found(form: str) -> None:
    (runs,) = read_runs(rows_of(form))
    (found,) = fit_runs(runs, resamples=3)
    fit = found.as_json()["repeated"][form]
    known = dict(zip((*NAMES, *FORMS[form]), (*BASE, *KNOWN[form]), strict=True))
    assert {name: fit[name] for name in known} == pytest.approx(known, rel=1e-2)
    assert fit["error"] < 1e-5 and all(fit["interval"][name] for name in known)
    other = next(name for name in FORMS if name != form)
    assert found.repeated[other].error > 100 * fit["error"]


def test_the_three_methods_read_no_run_that_read_its_text_again() -> None:
    rows = [row for row in rows_of("additive", (1, 1.04, 4, 40)) if row["tokens"] < 2e10]
    (runs,) = read_runs(rows)
    stages: list[str] = []
    (found,) = fit_runs(runs, "huber", 3, lambda name: stages.append(name) or (lambda *_: None))
    assert stages == ["direct fit", "isoFLOP minima", "laws of repeated text"]
    assert found.values == pytest.approx(BASE, rel=0.05)
    (once,) = read_runs([row for row in rows if row["epochs"] < 2])
    (alone,) = fit_runs(once, resamples=3)
    for name, method in found.methods.items():
        plain = alone.methods[name].as_json()
        assert json.dumps(method.as_json()) == json.dumps(plain)
    assert len(found.held_out) == len(alone.held_out)
    left_out = len(rows) - len(once.loss)
    assert any(f"{left_out} of {len(rows)} runs that read" in note for note in found.notes)
    with pytest.raises(UserError, match=r"table: no run read its text at most 1.05 times"):
        fit_runs(read_runs([row for row in rows if row["epochs"] > 2])[0])


def test_the_best_size_of_values_far_from_the_minimum_is_no_overflow() -> None:
    """Descents come by such values, of which numpy warned on the user's terminal."""
    runs = [np.array([x]) for x in (1e9, 1e10, 1e9)]
    for alpha, beta, a, b in (
        (1e-3, 5.0, 1e3, 1e3),
        (5.0, 1e-3, 1e60, 1.0),
        (1e-3, 1.0, 1.0, 1e60),
    ):
        with np.errstate(all="raise", under="ignore"):
            loss = repeated_losses("half_life", np.array([1, a, b, alpha, beta, 1e4, 1e4]), *runs)
        assert not np.isnan(loss).any()


def test_muennighoffs_half_life() -> None:
    """After R_D* repetitions a share 1 - 1/e of them counted; ever more are worth R_D* at most."""
    worth = effective(np.array([1e8]), np.array([3.0, 15.387756, 1e6]), 15.387756) / 1e8
    assert worth == pytest.approx([3.7254, 1 + 15.387756 * (1 - 1 / math.e), 16.387756], rel=1e-4)


@pytest.mark.parametrize(("epochs", "lines"), [((1.0, 1.02), 0), ((1.0, 4.0), 1)])
def test_text_that_is_hardly_repeated_has_no_law(epochs: tuple[float, ...], lines: int) -> None:
    (runs,) = read_runs(rows_of("additive", epochs))
    (found,) = fit_runs(runs, resamples=3)
    assert found.repeated == {}
    assert sum("read text again" in note for note in found.notes) == lines
