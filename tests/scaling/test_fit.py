"""The three fits against surfaces with known answers and against published fits."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import foreword
from foreword.errors import UserError
from foreword.reports.scaling import remarks_of
from foreword.scaling.columns import RunColumns
from foreword.scaling.fit import FamilyFit, LawFit, fit_runs
from foreword.scaling.law import Law, losses
from foreword.scaling.optima import PowerLaw
from foreword.scaling.runs import read_runs
from foreword.scaling.surface import Surface
from tests.scaling.surfaces import SURFACES, E, runs_on, with_noise

CHINCHILLA = Path(__file__).with_name("chinchilla.csv")
FEW = 40  # resampled tables, where their number does not matter


def fit(rows: list[dict[str, Any]], resamples: int = FEW) -> FamilyFit:
    (runs,) = read_runs(rows)
    return fit_runs(runs, resamples=resamples)[0]


@pytest.mark.parametrize(("values", "optimum", "parabolas"), SURFACES)
def test_known_surfaces(
    values: tuple[float, ...], optimum: tuple[float, float], parabolas: float
) -> None:
    found = fit(runs_on(values))
    alpha, beta, a, b = values
    assert found.values == pytest.approx([E, a, b, alpha, beta], rel=1e-3)
    for method in ("direct", "envelope"):
        law = found.methods[method].law
        assert (law.exponent, law.log10_intercept) == pytest.approx(optimum, abs=2e-6)
    law = found.methods["isoflop"].law
    assert (law.exponent, law.log10_intercept) == pytest.approx((optimum[0], parabolas), abs=2e-6)
    said = [note for note in found.notes if "too few tokens" in note]
    missed = round(100 * (1 - 10 ** (parabolas - optimum[1])))
    assert [f"{missed}% too few" in note for note in said] == [True] * (missed > 0)


@pytest.mark.parametrize(("values", "optimum", "_"), SURFACES)
@pytest.mark.parametrize(
    "grid", [{"shift": 3.0}, {"shift": 1 / 3, "drift": 2.0, "spread": 4.0}, {"spread": 2.0}]
)
def test_the_direct_fit_holds_off_centre(
    values: tuple[float, ...], optimum: tuple[float, float], _: float, grid: dict[str, float]
) -> None:
    rows = runs_on(values, **grid)  # type: ignore[arg-type]
    n, d, loss = (np.array([row[k] for row in rows]) for k in ("parameters", "tokens", "loss"))
    (found,), _value = Surface.of(n, d, loss).fit(np.ones((1, len(n))))
    alpha, beta, a, b = values
    assert found == pytest.approx([E, a, b, alpha, beta], rel=1e-3)


def test_epochs_points_of_chinchilla() -> None:
    """Besiroglu et al. 2024: their fit without a scale of the likelihood, and their intervals."""
    (runs,) = read_runs(CHINCHILLA)
    (found,) = fit_runs(runs, resamples=200)
    assert len(runs.loss) == 240
    assert found.values == pytest.approx([1.8172, 477.84, 2143.86, 0.34731, 0.36718], rel=3e-4)
    # With it they publish E 1.8169, A 482.01, B 2085.43, alpha 0.34781, beta 0.36585.
    assert found.values == pytest.approx([1.8169, 482.01, 2085.43, 0.34781, 0.36585], rel=0.03)
    published = {"E": (1.769, 1.871), "alpha": (0.317, 0.373), "beta": (0.331, 0.415)}
    for name, ends in published.items():
        assert found.intervals[name] == pytest.approx(ends, abs=0.012)
    assert "need budgets" in found.methods["isoflop"].refused
    assert not found.methods["direct"].refused and not found.methods["envelope"].refused
    assert any("FLOPs / (6 x parameters)" in note for note in found.notes)


@pytest.mark.parametrize(
    ("criterion", "published", "within"),
    [("squares", (1.9051, 0.3510, 0.4588), 3e-4), ("huber", (1.8267, 0.3240, 0.4080), 0.04)],
)
def test_ml_scalefit_below_1e21(
    criterion: Any, published: tuple[float, ...], within: float
) -> None:
    """Squared errors agree; their Huber loss is of the loss, ours of its logarithm."""
    (runs,) = read_runs(CHINCHILLA)
    below = runs.where(runs.flops < 1e21)
    assert len(below.loss) == 217
    surface = Surface.of(below.parameters, below.tokens, below.loss, criterion)
    (found,), _ = surface.fit(np.ones((1, 217)))
    assert found[[0, 3, 4]] == pytest.approx(published, rel=within)


def test_every_start_ends_at_the_same_fit_of_the_least_condition() -> None:
    (runs,) = read_runs(CHINCHILLA)
    surface = Surface.of(runs.parameters, runs.tokens, runs.loss)
    ended, objective = surface.descents(np.ones((1, 240)))
    assert ended.shape[1] >= 100
    assert np.ptp(objective) < 1e-9 * objective.min()
    assert surface.condition(ended[0, 0]) < 100


def test_intervals_hold_the_truth_and_the_largest_budget_is_forecast() -> None:
    values = SURFACES[1][0]
    budgets = tuple(np.logspace(13, 15, 5))
    found = fit(with_noise(runs_on(values, budgets, sizes=7, spread=6), 0.01, seeds=3), 300)
    truth = dict(zip(("alpha", "beta", "A", "B"), values, strict=True)) | {"E": E}
    for name, ends in found.intervals.items():
        assert ends is not None and ends[0] <= truth[name] <= ends[1]
    assert found.seed_noise == pytest.approx(0.01, rel=0.4)
    assert not found.fitted[found.runs.flops > 9e14].any() and found.fitted.sum() == 42
    assert len(found.held_out) == 7
    inside = [h.low <= found.runs.loss[h.item] <= h.high for h in found.held_out]
    assert sum(inside) >= 6
    for method in ("direct", "isoflop", "akima", "envelope"):
        low, high = found.methods[method].as_json()["interval"]["exponent"]
        assert low < found.methods[method].law.exponent < high


def test_seeds_that_read_a_few_tokens_more_or_fewer_once_are_of_one_cell() -> None:
    """As where first embeddings are counted, whose cost depends on the seed."""
    rows = with_noise(runs_on(SURFACES[1][0]), 0.01, seeds=3)
    for row in rows:
        row["tokens"] += row["seed"]
        row["unique_tokens"] = row["tokens"]
    (runs,) = read_runs(rows)
    assert runs.seed_noise() == pytest.approx(0.01, rel=0.4)


@pytest.mark.parametrize(
    ("deviation", "refused", "marks"), [(0.1, "", 0), (0.5, "", 1), (0.5, "x", 0)]
)
def test_a_law_with_a_wide_interval_is_marked(deviation: float, refused: str, marks: int) -> None:
    """Laws through one point at 1e14 FLOPs; at 1e15, 0.1 more or less is a factor of 1.6."""
    slopes = 0.5 + deviation * np.linspace(-1, 1, 50)
    law = LawFit(PowerLaw(0.5, 0.0), np.stack([slopes, 14 * (0.5 - slopes)], 1), refused)
    assert sum("too wide to plan by" in mark for mark in law.marked_if_wide(1e15).marks) == marks


def test_checkpoints_of_a_run_are_drawn_together() -> None:
    from foreword.scaling.fit import _draws

    rows = [
        {"parameters": n, "tokens": d, "loss": 2 + 9 * n**-0.2 + d**-0.3, "checkpoint": d}
        for n in (1e6, 2e6, 4e6)
        for d in (1e7, 2e7, 3e7)
    ]
    (runs,) = read_runs(rows)
    counts = _draws(runs, [], 50).reshape(50, 3, 3)
    assert (counts == counts[:, :, :1]).all() and (counts.sum((1, 2)) == 9).all()


def surface(n: float, d: float, form: str) -> float:
    steep, plain = 400 * n**-2.5 * 1e12, 400 * n**-0.3
    forms = {
        "steep": 2 + steep + 400 * d**-0.3,
        "floor": plain + 400 * d**-0.3,
        "sizes": 2 + 400 * d**-0.3,
        "kink": 2 + plain + 400 * d**-0.3 + 0.3 * (n > 3e6),
    }
    return forms[form]


@pytest.mark.parametrize(
    ("form", "ratio", "expected"),
    [
        ("steep", None, "outside 0 to 1.5"),
        ("floor", None, "E lies at its bound"),
        (
            "sizes",
            None,
            "alpha lies at its bound, 0: the loss does not fall as a power",
        ),
        ("kink", 20.0, "sizes and tokens grow together"),
    ],
)
def test_fits_that_are_not_to_be_trusted_are_refused(
    form: str, ratio: float | None, expected: str
) -> None:
    rows = []
    for n in np.geomspace(1e5, 1e7, 6):
        for d in [n * ratio] if ratio else np.geomspace(1e7, 1e9, 5):
            rows += [
                {"parameters": n * f, "tokens": d * f, "loss": surface(n * f, d * f, form)}
                for f in ((1.0, 1.5) if ratio else (1.0,))
            ]
    assert expected in fit(rows).methods["direct"].refused


def test_a_minimum_at_the_edge_is_marked_and_not_used() -> None:
    rows = runs_on(SURFACES[1][0], sizes=5, shift=40.0)
    found = fit(rows)
    assert "the largest size is the best" in found.methods["isoflop"].refused
    rising = fit(runs_on(SURFACES[1][0], sizes=5, shift=1 / 40))
    assert "the loss rises with size" in rising.methods["isoflop"].refused
    few = fit(runs_on(SURFACES[1][0], sizes=3))
    assert "3 sizes, of 4 needed" in few.methods["isoflop"].refused


def test_residuals_far_above_the_seed_noise_are_marked() -> None:
    rows = with_noise(runs_on(SURFACES[1][0], sizes=7), 0.001, seeds=3)
    middle = np.median([row["parameters"] for row in rows])
    for row in rows:
        row["loss"] += 0.3 * (row["parameters"] > middle)
    found = fit(rows)
    assert any("far above the seed noise" in m for m in found.methods["direct"].marks)
    law = found.law()
    assert law is not None and law.marks == found.methods["direct"].marks


def test_an_envelope_of_all_runs_and_minima_of_equal_losses_are_refused(tmp_path: Path) -> None:
    together = [row | {"tokens": 20 * row["parameters"]} for row in runs_on(SURFACES[1][0])]
    for row in together:
        row["flops"] = 6 * row["parameters"] * row["tokens"]
        row["loss"] = 1 + row["flops"] ** -0.01
    assert fit(together).methods["envelope"].refused
    equal = [row | {"loss": 3.0} for row in runs_on(SURFACES[1][0])]
    found = foreword.scale.fit(equal, tmp_path / "equal", resamples=3)
    assert all(method.refused for method in found.fits[0].methods.values())
    assert found.status == 2 and not found.laws


def test_flops_in_other_units_are_noted() -> None:
    (runs,) = read_runs([row | {"flops": 1e-6 * row["flops"]} for row in runs_on(SURFACES[0][0])])
    assert any("are the units right?" in note for note in runs.notes)


def test_runs_on_the_unigram_plateau_are_left_out() -> None:
    rows = [row | {"unigram": 6.0} for row in runs_on(SURFACES[1][0], sizes=7)]
    stuck = rows[0] | {"loss": 5.9, "flops": 1.001 * rows[0]["flops"]}
    (runs,) = read_runs([*rows, stuck])
    assert len(runs.loss) == len(rows)
    assert any("left out: 1 runs that have learned little" in note for note in runs.notes)
    with pytest.raises(UserError, match="no run has learned more"):
        read_runs([row | {"unigram": 1e-3} for row in rows])


def test_parameters_with_and_without_embeddings_are_both_fitted() -> None:
    rows = [
        row | {"parameters_without_embeddings": row["parameters"] * 0.7}
        for row in runs_on(SURFACES[0][0])
    ]
    (runs,) = read_runs(rows)
    both = fit_runs(runs, resamples=FEW)
    assert [one.counted for one in both] == ["all", "without embeddings"]
    assert both[1].values[1] == pytest.approx(400 * 0.7**0.31, rel=1e-3)
    # The optimum is the same: FLOPs per token are those of the table.
    assert both[1].methods["direct"].law.exponent == pytest.approx(0.5, abs=1e-3)


def test_a_law_is_kept_and_forecasts(tmp_path: Path) -> None:
    law = fit(with_noise(runs_on(SURFACES[1][0], sizes=9), 0.01, seeds=3)).law("bits per byte")
    assert law is not None
    law.save(tmp_path / "law.toml")
    again = Law.load(tmp_path / "law.toml")
    assert (again.E, again.alpha, again.unit) == (law.E, law.alpha, "bits per byte")
    expected = law.forecast(1e9, 2e10)
    assert again.forecast(1e9, 2e10).fit == pytest.approx(expected.fit, rel=1e-4)
    assert expected.fit[0] < expected.value < expected.fit[1]
    assert expected.seed is not None and law.seed_noise is not None
    assert expected.seed[1] - expected.value == pytest.approx(1.96 * law.seed_noise, rel=1e-3)
    assert expected.interval[0] < min(expected.fit[0], expected.seed[0])


def test_the_best_size_is_that_of_the_lowest_loss_for_any_flops_per_token() -> None:
    law = Law("x", 1.69, 406.4, 410.7, 0.34, 0.28)
    n, d = law.best_size(1e21)
    assert 6 * n * d == pytest.approx(1e21)
    assert math.log10(d) == pytest.approx(0.548387 * 21 - 0.555357, abs=1e-4)
    same = law.best_size(1e21, lambda size: 6 * size)
    assert same == pytest.approx((n, d), rel=1e-4)
    pairs = [(s, 6 * s + 1e9) for s in np.geomspace(1e6, 1e12, 400)]
    for rule in (pairs, lambda size: 6 * size + 1e9):
        n, d = law.best_size(1e19, rule)
        assert (6 * n + 1e9) * d == pytest.approx(1e19, rel=1e-3)
        around = [n * f for f in (0.97, 1.0, 1.03)]
        values = [float(losses(law.values, s, 1e19 / (6 * s + 1e9))[0]) for s in around]
        assert values[1] == min(values)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"loss": ""}, r"runs.csv:3: loss is missing"),
        ({"loss": "nan"}, r"runs.csv:3: loss is missing"),
        ({"loss": "-1"}, r"runs.csv:3: loss: must be above 0 and finite, got -1"),
        ({"flops": "inf"}, r"runs.csv:3: flops: must be above 0"),
        ({"parameters": "many"}, r"runs.csv:3: parameters: expected a number, got 'many'"),
        (
            {"loss": '"2,315"'},
            r"runs.csv:3: loss: expected a number, got '2,315'; decimals take a p",
        ),
        ({"flops": '"2,3e3"'}, r"runs.csv:3: flops: expected a number, got '2,3e3'; decimals take"),
        ({"unit": "bits"}, r"several units \(bits, nats\)"),
        (
            {"vocabulary": '"16,384"'},
            r"several vocabularies \(8192, 16384\), whose losses per token",
        ),
        ({"tokenizer": "other"}, r"several tokenizers \(bpe, other\)"),
        ({"parameters": "10", "tokens": "20", "flops": "1e3"}, r"runs.csv:3: the same run as 2"),
    ],
)
def test_bad_rows_get_one_line(tmp_path: Path, change: dict[str, str], expected: str) -> None:
    rows = [
        {"parameters": "10", "tokens": "20", "flops": "1e3", "loss": "3"},
        {"parameters": "20", "tokens": "20", "flops": "2e3", "loss": "2"},
    ]
    for row in rows:
        row |= {"tokenizer": "bpe", "unit": "nats", "vocabulary": "8192"}
    rows[1] |= change
    check_refused(tmp_path, rows, expected)


@pytest.mark.parametrize(
    ("rows", "options", "expected"),
    [
        ([(1, 2, 3), (1, 4, 2)], {}, "one size, 1 parameters"),
        ([(1, 20, 3), (2, 10, 2)], {}, "one budget, 120 FLOPs"),
        ([(1, 2, 3)], {"loss": "los"}, "--loss: no column 'los'; did you mean 'loss'"),
    ],
)
def test_tables_that_cannot_tell_get_one_line(
    tmp_path: Path, rows: list[tuple[int, ...]], options: dict[str, str], expected: str
) -> None:
    names = ("parameters", "tokens", "loss")
    named = [dict(zip(names, map(str, row), strict=True)) for row in rows]
    check_refused(tmp_path, named, expected, **options)


def test_counts_may_have_commas_and_losses_in_bits_per_byte_any_vocabulary() -> None:
    rows = [
        {name.replace("loss", "Bits per byte"): value for name, value in row.items()}
        | {"parameters": f"{row['parameters']:,.2f}", "vocab": ("512", "8192.0", "²")[number % 3]}
        for number, row in enumerate(runs_on(SURFACES[1][0]))
    ]
    (runs,) = read_runs(rows, RunColumns(loss="Bits per byte"))
    assert runs.parameters == pytest.approx([r["parameters"] for r in runs_on(SURFACES[1][0])])
    assert runs.unit == "bits per byte" and runs.vocabulary is None
    (runs,) = read_runs(
        [row | {"vocab": "8,192.0"} for row in rows], RunColumns(loss="Bits per byte")
    )
    assert runs.vocabulary == 8192


def test_a_family_without_a_law_keeps_no_other_from_its_own(tmp_path: Path) -> None:
    rows = [row | {"family": "a"} for row in runs_on(SURFACES[1][0], sizes=5)]
    one = [row | {"family": "b", "parameters": 1e6} for row in rows]
    found = foreword.scale.fit([*rows, *one], tmp_path / "out", resamples=3)
    assert set(found.laws) == {"a.toml"}
    (line,) = found.data()["left_out"]
    assert line.startswith("left out: table: family b: one size") and line in str(found.tables())
    with pytest.raises(UserError, match="family b: one size"):
        foreword.scale.fit(one, tmp_path / "none", resamples=3)


def test_what_was_held_out_is_said_as_it_is() -> None:
    """Of three budgets the largest is, even where no law is there to forecast it."""
    floor = [row | {"loss": row["loss"] - E} for row in runs_on(SURFACES[0][0], sizes=7)]
    assert not any("nothing was held out" in note for note in fit(floor).notes)
    two = runs_on(SURFACES[0][0], (1e17, 1e18), sizes=7)
    assert any("nothing was held out" in note for note in fit(two).notes)
    unsure = fit(runs_on(SURFACES[0][0], sizes=7)).notes
    assert any("which leave out the noise of seeds" in note for note in unsure)


def test_a_mark_names_the_method_unless_both_ways_to_find_minima_have_it() -> None:
    found = fit(runs_on(SURFACES[1][0], sizes=5, shift=40.0))
    assert [line for line in remarks_of(found) if line.startswith("isoFLOP refused: ")]
    methods = found.methods | {
        name: LawFit(PowerLaw(), marks=marks)
        for name, marks in (("isoflop", ("a", "b")), ("akima", ("a", "c")))
    }
    lines = remarks_of(replace(found, methods=methods))
    assert {"isoFLOP: a", "isoFLOP, parabolas: b", "isoFLOP, Akima: c"} <= set(lines)
    assert len(lines) == len(set(lines))


@pytest.mark.parametrize("missing", ["parameters", "loss", "tokens"])
def test_a_missing_column_is_named(tmp_path: Path, missing: str) -> None:
    row = {name: "1" for name in ("parameters", "tokens", "loss") if name != missing}
    check_refused(tmp_path, [row], f"no column '{missing}'")


def check_refused(folder: Path, rows: list[dict[str, str]], expected: str, **options: str) -> None:
    file = folder / "runs.csv"
    lines = [",".join(rows[0]), *(",".join(row.values()) for row in rows)]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    with pytest.raises(foreword.UserError, match=expected.replace("--", r"--")) as error:
        foreword.scale.fit(file, **options)
    assert "\n" not in str(error.value)
    assert not (folder / "runs-laws").exists()


def test_the_command_writes_a_page_tables_and_laws(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from foreword.cli.main import run

    rows = [
        row | {"family": family}
        for family in ("encoder", "decoder")
        for row in with_noise(runs_on(SURFACES[0][0], sizes=6), 0.01, seeds=3)
    ]
    file = tmp_path / "runs.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    assert run(["scale", "fit", str(file), "--resamples", "30", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    out = tmp_path / "runs-laws"
    assert set(found["families"]) == {"encoder", "decoder"}
    direct = found["families"]["encoder"]["direct"]
    assert {"E", "A", "B", "alpha", "beta", "interval"} <= direct.keys()
    for method in ("isoflop", "envelope"):
        keys = found["families"]["decoder"][method].keys()
        assert {"exponent", "log10_intercept", "interval"} <= keys
    page = (out / "laws.html").read_text(encoding="utf-8")
    assert page.count("<figure") == 2 * 3 and "isoFLOP, parabolas" in page
    # Side by side first; each family is folded, so that the page is no yards of tables on a phone.
    assert "<h2>Direct fits</h2>" in page and page.count('<details class="chapter">') == 2
    assert pytest.approx(direct["E"]) == Law.load(out / "encoder.toml").E
    assert len((out / "runs.csv").read_text().splitlines()) == len(rows) + 1
    assert len((out / "methods.csv").read_text().splitlines()) == 9
    # The other criterion is another fit; a wrong one is refused.
    shown = ["scale", "fit", str(file), "--resamples", "5", "--json", "--criterion"]
    assert run([*shown, "squares"]) == 0
    other = json.loads(capsys.readouterr().out)["families"]["encoder"]["direct"]
    assert other["E"] != direct["E"] and other["E"] == pytest.approx(direct["E"], rel=0.1)
    assert run([*shown, "square"]) == 2
    assert "--criterion: must be one of huber, squares" in capsys.readouterr().err
