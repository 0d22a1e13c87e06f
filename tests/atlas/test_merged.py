"""The atlas: shared cells, what is recorded before training, a page from the results alone."""

from __future__ import annotations

import math
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import foreword
from foreword.atlas.merged import Atlas, atlas, load_claims
from foreword.atlas.rows import ClaimRow
from foreword.comparison.grid import Grid
from foreword.disk import stored
from foreword.errors import UserError
from foreword.evaluation.statistics import holm
from foreword.settings import config
from tests.comparison import grids

NARROW = {"model": {"layers": 1}, "prepare": {"train_share": 0.5}}


def write(folder: Path, name: str, **more: Any) -> str:
    """Write a claim beside the files of the tiny grid; return its path."""
    said = {"sentence": f"{name} is so", "source": "a lecture", "measure": "heldout_loss"}
    prediction = {"higher": ["masked"], "lower": ["decoder"], **more.pop("claim", {})}
    path = folder / f"{name}.toml"
    table = grids.table(**{"tasks": None, "seeds": 2, **more, "claim": {**said, **prediction}})
    path.write_text(config.dumps(table), encoding="utf-8")
    return str(path)


@pytest.fixture
def claims(tmp_path: Path) -> Path:
    """A folder with two claims that share a cell under two names."""
    grids.write_files(tmp_path)
    write(tmp_path, "first", probes=[{"kind": "cloze"}])
    renamed = {**grids.CAUSAL, "label": "GPT"}
    task = {**grids.TASK, "scratch": False}
    write(
        tmp_path,
        "second",
        cells=[renamed, {**grids.MASKED, "set": NARROW}],
        tasks=[task],
        claim={"higher": ["masked"], "lower": ["GPT"], "measure": "Reviews"},
        seeds=3,
    )
    return tmp_path


def made(folder: Path, *names: str, scale: float = 1.0) -> Atlas:
    loaded, left_out = load_claims([str(folder / f"{n}.toml") for n in names], [], None)
    assert not left_out
    return atlas(loaded, scale)


def test_cells_of_equal_content_are_one(claims: Path) -> None:
    found = made(claims, "first", "second")
    cells = {cell.name: cell for cell in found.grid.cells}
    # The one that both need is first; the other masked has fewer layers.
    assert list(cells) == ["decoder", "masked", "masked #2"]
    assert [cell.seeds for cell in cells.values()] == [3, 2, 3]
    assert [cell.measures for cell in cells.values()] == [("Reviews",), (), ("Reviews",)]
    assert not found.grid.probes  # no claim is about it
    names = [str(term) for _, term in found.claims["second"].weighted]
    assert names == ["masked #2", "decoder"]


def test_a_cell_that_names_the_kind_of_its_recipe_keeps_the_settings_of_its_claim(
    claims: Path,
) -> None:
    narrow = {"kind": "transformer", "d_ff": 12}
    more = {"cells": [{**grids.MASKED, "set": {"model": narrow}}, grids.CAUSAL]}
    write(claims, "narrow", set={"model": {"layers": 3}}, **more)
    found = made(claims, "narrow").grid
    assert [found.recipe(cell, 1).model.layers for cell in found.cells] == [3, 1]


def test_budgets_are_scaled_but_not_in_steps(claims: Path) -> None:
    write(claims, "longer", budget={"unit": "tokens", "amount": 100.0})
    for name, amount in (("first", 3), ("longer", 400)):
        cells = made(claims, name, scale=4).grid.cells
        assert [cell.budget.amount for cell in cells if cell.budget] == [amount, amount]


@pytest.mark.parametrize(("unit", "scale", "share"), [
    ("tokens", 4, 0.4), ("tokens", 40, 1.0), ("tokens", 0.1, 0.1), ("steps", 4, 0.1),
])  # fmt: skip
def test_a_share_of_the_text_grows_with_the_budget(
    claims: Path, unit: str, scale: float, share: float
) -> None:
    """Four times the training on the same share would read it four times as often."""
    part = {**grids.MASKED, "set": {"prepare": {"train_share": 0.1}}}
    write(claims, "part", cells=[part, grids.CAUSAL], budget={"unit": unit, "amount": 100.0})
    found = made(claims, "part", scale=scale).grid
    shares = {cell.name: found.recipe(cell, 1).prepare.train_share for cell in found.cells}
    assert shares == {"masked": share, "decoder": 1.0}


def test_claims_without_their_files_are_left_out(claims: Path) -> None:
    (claims / "train.tsv").unlink()
    files = [str(claims / f"{name}.toml") for name in ("first", "second")]
    loaded, left_out = load_claims(files, [], None)
    assert list(loaded) == ["first"]
    assert "train.tsv: no such file" in left_out["second"]


@pytest.mark.parametrize(
    ("claim", "message"),
    [
        ({"lower": ["decodr"]}, "no cell 'decodr'; did you mean 'decoder'"),
        ({"measure": "bits_per_bite"}, "did you mean 'bits_per_byte'"),
    ],
)
def test_unknown_names_are_refused(claims: Path, claim: dict[str, Any], message: str) -> None:
    write(claims, "wrong", claim=claim)
    with pytest.raises(UserError, match=message):
        made(claims, "wrong")


def test_a_run_continues_and_its_page_needs_its_results_alone(claims: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = foreword.claims.run([claims / "first.toml"], out=out, progress=False)
    (row,) = first.data()["claims"]
    assert row["verdict"] != "not measured"
    assert row["recorded_before"]
    assert re.fullmatch(r"masked \S+ ± \S+, decoder \S+ ± \S+", row["measured"])
    # Another claim shares a cell, of which nothing is trained again, and comes after it.
    write(claims, "third", cells=[grids.CAUSAL, {**grids.MASKED, "set": NARROW}])
    trained = {file: file.stat().st_mtime_ns for file in (out / "runs").glob("*/recipe.toml")}
    assert len(trained) == 4
    foreword.claims.run([claims / "third.toml"], out=out, progress=False)
    both = foreword.claims.run(
        [claims / "first.toml", claims / "third.toml"], out=out, progress=False
    )
    assert all(file.stat().st_mtime_ns == at for file, at in trained.items())
    assert len(list((out / "runs").glob("*/recipe.toml"))) == 4 + 2
    late = {row["claim"]: row["recorded_before"] for row in both.data()["claims"]}
    assert late == {"first": True, "third": False}
    # Its table needs no text and no runs.
    alone = tmp_path / "alone"
    alone.mkdir()
    for name in ("claims.json", "results.json"):
        shutil.copy(out / name, alone)
    again = foreword.claims.table(alone, to=tmp_path / "page")
    assert again.data()["claims"] == both.data()["claims"]
    page = (tmp_path / "page/claims.md").read_text(encoding="utf-8")
    assert "heldout loss: masked less decoder is above 0" in page
    assert "been made to fit: third" in page


def test_verdicts_of_an_earlier_call_stay_at_the_same_scale(claims: Path, tmp_path: Path) -> None:
    def rows(name: str, scale: float = 1.0) -> dict[str, ClaimRow]:
        made = foreword.claims.run([claims / name], out=out, scale=scale, progress=False)
        return {row.claim: row for row in made.table.rows}

    out, tokens = tmp_path / "out", {"unit": "tokens", "amount": 100.0}
    write(claims, "third", cells=[grids.CAUSAL, {**grids.MASKED, "set": NARROW}], budget=tokens)
    first = rows("first.toml")["first"]
    both = rows("third.toml")
    assert set(both) == {"first", "third"}
    assert replace(both["first"], p_holm=first.p_holm) == first
    assert [row.p_holm for row in both.values()] == holm([row.p for row in both.values()])
    page = (out / "claims.md").read_text(encoding="utf-8")
    assert page.count("(1 of the claims)") == 2
    assert set(rows("third.toml", scale=2.0)) == {"third"}


def test_a_page_keeps_verdicts_whose_results_are_elsewhere(claims: Path, tmp_path: Path) -> None:
    out, page = tmp_path / "out", tmp_path / "page"
    foreword.claims.run([claims / "first.toml"], out=out, progress=False)
    (first,) = foreword.claims.table(out, to=page).rows
    cells = (page / "claims_cells.csv").read_text(encoding="utf-8").splitlines()
    other = tmp_path / "other"
    other.mkdir()
    shutil.copy(out / "results.json", other)
    recorded = stored.read(out / "claims.json")
    claim = recorded["claims"]["first"]
    missing = {**claim, "claim": {**claim["claim"], "lower": ["another"]}}
    made = {"second": claim, "first": missing, "third": missing}
    stored.write(other / "claims.json", {**recorded, "where": "on a GPU", "claims": made})
    rows = {row.claim: row for row in foreword.claims.table(other, to=page).rows}
    assert replace(rows["first"], p_holm=first.p_holm) == first
    assert rows["third"].verdict == "not measured"
    assert math.isnan(rows["third"].p_holm)
    assert rows["second"] == replace(rows["first"], claim="second", run=rows["second"].run)
    assert rows["second"].run.startswith("on a GPU")
    written = (page / "claims_cells.csv").read_text(encoding="utf-8").splitlines()
    assert set(cells) < set(written)
    assert len(written) == 2 * len(cells) - 1
    # What the folder holds takes the place of what the page had.
    stored.write(other / "claims.json", {**recorded, "where": "on a GPU"})
    again = {row.claim: row.run for row in foreword.claims.table(other, to=page).rows}
    assert again == dict.fromkeys(("first", "second"), rows["second"].run)
    # A page from before cells had all of today's columns.
    old = [line.rsplit(",", 2)[0] for line in written]
    (page / "claims_cells.csv").write_text("\n".join(old), encoding="utf-8")
    kept = {row.claim for row in foreword.claims.table(other, to=page).rows}
    assert kept == {"first", "second"}
    (page / "claims.csv").write_text("claim,verdict\nthird,holds\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"claims\.csv: its verdicts cannot be kept"):
        foreword.claims.table(other, to=page)


def test_a_changed_prediction_is_recorded_as_late(claims: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    foreword.claims.run([claims / "first.toml"], out=out, progress=False)
    write(claims, "first", claim={"by": -9.0})
    (row,) = foreword.claims.run([claims / "first.toml"], out=out, progress=False).data()["claims"]
    assert (row["least"], row["recorded_before"]) == (-9.0, False)


def test_hours_choose_a_scale_that_stays(claims: Path, tmp_path: Path) -> None:
    file = write(claims, "longer", budget={"unit": "tokens", "amount": 100.0})
    whole = foreword.claims.run([file], out=tmp_path / "out", dry_run=True, progress=False)
    assert whole.compared.forecast is not None
    hours = 3 * whole.compared.forecast.seconds / 3600
    first = foreword.claims.run([file], out=tmp_path / "out", hours=hours, progress=False)
    assert 0.3 < first.scale < 30
    again = foreword.claims.run([file], out=tmp_path / "out", hours=hours, progress=False)
    assert again.scale == first.scale
    with pytest.raises(UserError, match="leave out --scale"):
        foreword.claims.run([file], out=tmp_path / "out", hours=hours, scale=2.0)


def test_the_claim_of_the_page_on_claims_is_one(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/writing_claims.md").read_text(encoding="utf-8")
    file = tmp_path / "mine.toml"
    file.write_text(page.split("```toml\n")[1].split("```")[0], encoding="utf-8")
    loaded, _ = load_claims([str(file)], ["text"], None)
    assert [cell.name for cell in atlas(loaded).grid.cells] == ["RNN", "LSTM"]


def test_shipped_claims_make_an_atlas(tmp_path: Path) -> None:
    loaded: dict[str, Grid] = {}
    for name in config.CLAIMS.names():
        grid = config.load(Grid, config.CLAIMS.find(name))
        assert grid.claim is not None
        loaded[name] = grid
    found = atlas(loaded)
    budgets = [cell.budget for cell in found.grid.cells]
    assert all(budget is not None for budget in budgets)
    assert set(found.claims) == set(config.CLAIMS.names())
