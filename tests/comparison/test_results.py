"""Means, intervals, tables and plots of a comparison."""

from __future__ import annotations

import csv
import dataclasses
import json
import math
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from foreword.cli.main import run
from foreword.comparison.grid import load_grid
from foreword.comparison.jobs import TimeLeft
from foreword.comparison.margins import CorrectAnswers, from_lines, margins, to_lines
from foreword.comparison.power import power_notes
from foreword.comparison.results import gather
from foreword.comparison.run import Comparison
from foreword.comparison.tables import MarkdownTable, notes, tables, write
from foreword.comparison.verdicts import verdicts
from foreword.disk import stored
from foreword.errors import UserError
from foreword.evaluation.heldout import on_prepared
from foreword.evaluation.margins import margin
from foreword.evaluation.statistics import half_width_of_share, interval
from foreword.reports.comparison import write_comparison
from foreword.runs.run import train_run
from foreword.runs.run_folder import open_run
from tests.comparison import grids

VALUES = [0.61, 0.58, 0.66, 0.6]


def test_the_interval_equals_scipys() -> None:
    actual = interval(VALUES)
    low, high = stats.t.interval(0.95, 3, np.mean(VALUES), stats.sem(VALUES))
    assert actual.mean - actual.half_width == pytest.approx(low)
    assert actual.mean + actual.half_width == pytest.approx(high)
    assert str(actual) == "0.613 ± 0.054"


def test_perplexities_of_answers_that_are_bounds_are_marked_and_not_ranked(
    folder: Path, out: Path
) -> None:
    task = {key: value for key, value in grids.TASK.items() if key != "metric"}
    grid = load_grid(grids.write_grid(folder, tasks=[task]))
    results = gather(Comparison(grid, out, grids.Quiet()))
    answers = [dataclasses.replace(one, scores={"perplexity": 9.0}) for one in results.scores]
    exact = dataclasses.replace(results, scores=answers)
    runs = [dataclasses.replace(run, is_bound=run.cell == "masked") for run in results.runs]
    bounded = dataclasses.replace(exact, runs=runs)
    for each, count in ((exact, 1), (bounded, 0)):
        assert sum(one.metric == "perplexity" for one in verdicts(each)) == count
        assert len(each.spreads(grid.tasks[0])) == 1 + count
        (rows,) = (table.rows for table in tables(each) if table.title == "Fine-tuning")
        shown = {row[0]: "at most 9.000" in " ".join(row) for row in rows}
        assert shown["masked"] != bool(count) and not shown["decoder"]


def test_one_value_has_no_interval() -> None:
    assert math.isnan(interval([0.5]).half_width)
    assert str(interval([0.5])) == "0.500"


def test_the_interval_covers_the_mean_at_its_level() -> None:
    samples = np.random.default_rng(1).normal(3.0, 2.0, (2000, 3))
    held = [abs(estimate.mean - 3.0) <= estimate.half_width for estimate in map(interval, samples)]
    assert np.mean(held) == pytest.approx(0.95, abs=0.015)


def test_the_interval_of_an_accuracy_covers_it_at_its_level() -> None:
    assert half_width_of_share(277) == pytest.approx(0.059, abs=5e-4)  # RTE
    right = np.random.default_rng(1).binomial(277, 0.5, 20_000) / 277
    assert np.mean(abs(right - 0.5) <= half_width_of_share(277)) == pytest.approx(0.95, abs=0.01)


def test_time_left_is_estimated_from_similar_pieces() -> None:
    clock = TimeLeft(["train", "tune", "train", "tune"])
    assert clock.estimate(0, 0.0, 0.0) == (0.0, False)
    assert clock.estimate(0, 0.25, 10.0) == (30.0 + 40.0, False)
    clock.add(0, 40.0)
    clock.add(1, 5.0)
    assert clock.estimate(2, 0.0, 0.0) == (45.0, True)
    assert clock.estimate(2, 0.5, 30.0) == (35.0, True)


def test_scores_are_those_of_the_last_epoch(folder: Path, out: Path) -> None:
    comparison = grids.compare(folder, out)
    results = gather(comparison)
    (task,) = comparison.grid.tasks
    file = out / "runs" / "masked-1" / "evaluations" / "tune-classify-reviews.json"
    document = json.loads(file.read_text(encoding="utf-8"))
    interval = results.task_interval("masked", task, "pretrained")
    assert interval is not None
    assert interval.mean == pytest.approx(document["rows"][0]["matthews"])
    error = document["rows"][0]["matthews_std"] / math.sqrt(2)
    assert interval.half_width == pytest.approx(error * stats.t.ppf(0.975, 1))
    chance_loss = results.task_interval("", task, "majority class")
    assert chance_loss is not None
    assert chance_loss.mean == pytest.approx(0.0)


def test_an_undefined_score_stays_undefined_to_the_last_page(folder: Path, out: Path) -> None:
    file = out / "runs" / "masked-1" / "evaluations" / "tune-classify-reviews.json"
    document = stored.read(file)
    first = next(row for row in document["epochs"] if row["seed"] == 1)
    last = max(row["epoch"] for row in document["epochs"])
    for row in document["epochs"]:
        if (row["seed"], row["start"], row["epoch"]) == (1, first["start"], last):
            row["matthews"] = math.nan  # null in the file
    stored.write(file, document)
    results = gather(grids.compare(folder, out))
    (task,) = results.comparison.grid.tasks
    interval = results.task_interval("masked", task, "pretrained")
    assert interval is not None
    assert math.isnan(interval.mean)
    fine_tuning = next(table for table in tables(results) if table.title == "Fine-tuning")
    assert fine_tuning.rows[0][:2] == ("masked", "–")
    assert not any("nan" in line for line in power_notes(results))
    write(results)
    page = write_comparison(out).read_text(encoding="utf-8")
    assert "Reviews: decoder is highest" in page
    assert "nan" not in page.replace("finance", "").split("</style>")[-1]


def test_a_run_that_has_lost_its_log_is_named(folder: Path, out: Path) -> None:
    (out / "runs" / "masked-1" / "metrics.jsonl").unlink()
    with pytest.raises(UserError, match=r"metrics\.jsonl: is missing or empty; delete .* to"):
        gather(grids.compare(folder, out))


def test_each_run_has_the_loss_of_the_frequencies_of_what_it_predicts(
    folder: Path, tmp_path: Path
) -> None:
    spans = {**grids.MASKED, "label": "spans", "set": {"objective": {"kind": "span_masked"}}}
    counted = {"label": "counts", "recipe": "ngram_tiny"}
    cells, read = [grids.MASKED, grids.CAUSAL, spans, counted], grids.Quiet()
    comparison = grids.compare(folder, tmp_path, read, cells=cells, tasks=None)
    of = {one.cell: one for one in gather(comparison).runs}
    assert len(of) == len(cells)
    for name, one in of.items():
        if name == "counts":
            assert (one.token_loss, one.unigram) == (one.heldout_loss, None)
            assert one.epochs == pytest.approx(1.0, abs=0.1)
            continue
        recipe = comparison.recipes[name, 1]
        text = comparison.corpora.shards_for(recipe)
        beside = on_prepared(open_run(Path(one.run)), text, recipe.train.heldout_rows)[-1]
        assert one.unigram == pytest.approx(beside.loss, abs=0.05)
        assert one.epochs == one.tokens / text.counts["train"].tokens
    # Of a sum, the part that predicts tokens.
    assert of["masked"].token_loss == of["masked"].heldout_loss
    assert of["spans"].token_loss != of["spans"].heldout_loss
    # They are counted once, and not again in the next call.
    assert "counting tokens" in read.notes
    again = grids.Quiet()
    same = gather(grids.compare(folder, tmp_path, again, cells=cells, tasks=None))
    assert "counting tokens" not in again.notes
    assert [one.unigram for one in same.runs] == [one.unigram for one in of.values()]


def test_counts_of_a_text_leave_a_network_of_it_its_loss_of_frequencies(
    folder: Path, tmp_path: Path
) -> None:
    decoder = tomllib.loads((folder / "decoder.toml").read_text())
    same = {part: decoder[part] for part in ("read", "tokenizer", "prepare", "packing")}
    same["packing"]["bos"] = "<s>"
    same["train"] = {"heldout_rows": decoder["train"]["heldout_rows"]}
    counts = {"label": "counts", "recipe": "ngram_tiny", "set": same}
    network = {"label": "network", "recipe": "decoder.toml", "set": same}
    comparison = grids.compare(folder, tmp_path, cells=[counts, network], tasks=None)
    shards = {comparison.corpora.shards_for(of).fingerprint for of in comparison.recipes.values()}
    assert len(shards) == 1
    of = {one.cell: one.unigram for one in gather(comparison).runs}
    assert of["counts"] is None
    assert of["network"] is not None


@pytest.mark.full
def test_with_several_pretraining_seeds_the_interval_is_over_them(folder: Path, out: Path) -> None:
    comparison = grids.compare(folder, out, seeds=2)
    results = gather(comparison)
    (task,) = comparison.grid.tasks
    means = [
        np.mean(
            [s.scores["matthews"] for s in results.scores if s.seed == n and s.cell == "decoder"]
        )
        for n in (1, 2)
    ]
    interval = results.task_interval("decoder", task, "pretrained")
    assert interval is not None
    assert interval.count == 2
    assert interval.mean == pytest.approx(np.mean(means))
    losses = [run.heldout_loss for run in results.runs if run.cell == "decoder"]
    assert len(set(losses)) == 2
    assert any("over 2 seeds of pretraining" in note for note in notes(results))


def test_results_are_written_as_json_csv_markdown_and_plot(
    folder: Path, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["compare", grids.write_grid(folder), "--out", str(out)]
    assert run([*words, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    kept = json.loads((out / "results.json").read_text(encoding="utf-8"))
    assert kept.pop("checksum")
    assert document == kept
    assert [cell["cell"] for cell in document["cells"]] == ["masked", "decoder"]
    assert document["metrics"] == {"Reviews": "matthews"}
    assert document["failures"] == []
    facts = document["runs"][0]
    assert facts["steps"] == 3
    assert facts["tokens"] == 3 * 4 * 16
    assert facts["parameters"] * 4 <= facts["bytes"] < facts["parameters"] * 4 + 10_000
    assert [point[0] for point in facts["curve"]] == sorted(point[0] for point in facts["curve"])
    assert facts["samples"]
    with (out / "results.csv").open(encoding="utf-8") as file:
        lines = [row for row in csv.DictReader(file) if not row["start"].startswith("over ")]
    scores = [line for line in lines if line["task"] == "Reviews" and line["cell"]]
    assert len(scores) == 2 * 2 * 2 * 3  # cells, starts, seeds, metrics
    assert (out / "plot.png").read_bytes().startswith(b"\x89PNG")
    text = (out / "table.md").read_text(encoding="utf-8")
    assert "| cell | Reviews, matthews | from scratch |" in text
    assert "not comparable between objectives" in text
    assert "the first 16 rows" in text
    assert "±" in text
    assert run(words) == 0
    assert "Fine-tuning" in capsys.readouterr().out


def test_without_tasks_there_is_no_fine_tuning_table(folder: Path, out: Path) -> None:
    results = gather(grids.compare(folder, out, tasks=[]))
    assert [table.title for table in tables(results)] == ["Pretraining", "What they say"]
    assert {"parameters", "on disk", "tokens/s"} <= set(tables(results)[0].columns)


@pytest.mark.full
def test_a_failure_is_in_the_table_and_in_the_exit_status(
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(run: Path, *rest: Any) -> bool:
        if "odd" in run.name:
            raise UserError("out of memory on cpu")
        return train_run(run, *rest)

    monkeypatch.setattr("foreword.runs.run.train_run", fail)
    odd = {"label": "odd", "recipe": "encoder.toml"}
    words = ["compare", grids.write_grid(folder, cells=[odd, grids.CAUSAL], tasks=[])]
    assert run([*words, "--out", str(tmp_path / "out")]) == 2
    assert "Failed: odd, seed 1: pretraining: " in capsys.readouterr().err
    text = (tmp_path / "out" / "table.md").read_text(encoding="utf-8")
    assert "Failed: odd, seed 1: pretraining: " in text
    assert "1 of 2 jobs are not done" in text
    assert "| decoder | decoder |" in text


def test_an_interrupted_comparison_prints_how_to_continue(
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("foreword.runs.run.train_run", lambda *_: False)
    words = ["compare", grids.write_grid(folder), "--out", str(tmp_path / "out")]
    assert run(words) == 130
    assert "stopped; the same command continues" in capsys.readouterr().err


@pytest.mark.full
def test_a_dry_run_trains_nothing(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["compare", grids.write_grid(folder, seeds=2), "--out", str(tmp_path / "out")]
    assert run([*words, "--dry-run", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    first, second = document["cells"]
    assert (first["cell"], second["cell"]) == ("masked", "decoder")
    assert first["tokens"] == second["tokens"] == 3 * 4 * 16
    assert first["flops_per_token"] > 0
    each = [2 * c["pretraining_seconds"] + c["tuning_seconds"] for c in document["cells"]]
    assert document["seconds"] == pytest.approx(sum(each))
    assert not (tmp_path / "out" / "runs").exists()


@pytest.mark.parametrize(("metric", "more"), [("matthews", "."), ("accuracy", ", so up to ± 0.28")])
def test_notes_give_the_number_of_dev_examples(
    metric: str, more: str, folder: Path, out: Path
) -> None:
    comparison = Comparison(
        load_grid(grids.write_grid(folder, tasks=[{**grids.TASK, "metric": metric}])),
        out,
        grids.Quiet(),
    )
    comparison.prepare()
    (note,) = [line for line in notes(gather(comparison)) if "dev examples" in line]
    assert f"Reviews has 12{more}" in note


def test_the_sample_table_shows_every_sample_and_the_blanks_of_long_ones(
    out: Path, folder: Path
) -> None:
    """Each cell has three samples; of a long one every blank is shown."""
    results = gather(grids.compare(folder, out))
    long = "a b c d e f g h «i» j k l m n " + "o " * 150 + "p q r s t «u» v w x y z."
    written = ("One.", "Two " * 60, long)
    samples = tuple({"prompt": f"{n}", "text": text} for n, text in enumerate(written))
    runs = [dataclasses.replace(run, samples=samples) for run in results.runs]
    table = tables(dataclasses.replace(results, runs=runs))[-1]
    assert [row[:2] for row in table.rows] == [
        (cell, str(n)) for cell in ("masked", "decoder") for n in range(3)
    ]
    one, two, blanks = (row[2] for row in table.rows[:3])
    assert one == "One."
    assert two == "Two " * 40 + "…"
    assert blanks == "… e f g h «i» j k l m … q r s t «u» v w x y …"


def test_markdown_escapes_bars_and_tags() -> None:
    assert "a\\|b &lt;unk>" in MarkdownTable("x", ("y",), (("a|b <unk>",),)).markdown()


def test_a_column_without_figures_is_left_out() -> None:
    rows = (("a", "–", "1"), ("b", "–", "–"))
    table = MarkdownTable("Losses", ("cell", "perplexity", "loss"), rows)
    assert table.without_empty_columns().columns == ("cell", "loss")
    assert table.without_empty_columns().rows == (("a", "1"), ("b", "–"))


def test_margins_are_over_scratch_baselines_and_the_first_cell(folder: Path, out: Path) -> None:
    results = gather(grids.compare(folder, out, tasks=[{**grids.TASK, "metric": "accuracy"}]))
    (task,), cells = results.comparison.grid.tasks, results.comparison.grid.cells
    by_cell = {cell.name: results.margins(cell, task) for cell in cells}
    assert set(by_cell["masked"]) == {"from scratch", "bag of words"}
    assert set(by_cell["decoder"]) == {"from scratch", "bag of words", "masked"}
    for name, by_other in by_cell.items():
        mine = results.task_interval(name, task, "pretrained")
        for other, each in by_other.items():
            where = ("" if other == "bag of words" else name, other)
            if other == "masked":
                where = ("masked", "pretrained")
            theirs = results.task_interval(where[0], task, where[1])
            assert mine is not None and theirs is not None
            assert each.difference == pytest.approx(mine.mean - theirs.mean)
            assert each.low <= each.difference <= each.high
    (table,) = [table for table in tables(results) if table.title == "Margins"]
    assert table.columns[:3] == ("task", "cell", "over from scratch")
    assert [row[:2] for row in table.rows] == [("Reviews", "masked"), ("Reviews", "decoder")]
    assert results.as_json()["margins"][0]["over"] == "from scratch"
    said = "Margins are points of accuracy with their 95% intervals, "
    assert any(f"{said}over seeds of fine-tuning and over examples:" in n for n in notes(results))
    answers = [dataclasses.replace(one, correct=one.correct[:1]) for one in results.answers]
    one_seed = dataclasses.replace(results, answers=answers)
    assert any(f"{said}with one seed over examples alone:" in n for n in notes(one_seed))


def test_seeds_of_pretraining_are_not_paired() -> None:
    rng = np.random.default_rng(1)
    tuned = [(rng.random((3, 40)) < share).astype(float) for share in (0.5, 0.9)]
    tuned[0][1] = np.nan  # diverged
    scratch = np.stack([seed.mean(axis=0) for seed in tuned[1:]] * 2)
    read = [from_lines(to_lines(seed)) for seed in tuned]
    np.testing.assert_equal(read, tuned)
    answers = [CorrectAnswers("a", n, "t", "pretrained", seed) for n, seed in enumerate(read, 1)]
    answers.append(CorrectAnswers("a", 0, "t", "from scratch", scratch))
    actual = margins(answers, "a", "t", "a")["from scratch"]
    mine = np.stack([np.nanmean(seed, axis=0) for seed in tuned])
    assert actual == margin("a", mine, "from scratch", scratch, is_paired=False)
    assert actual.seeds == 2


def test_metrics_other_than_accuracy_have_no_margins(folder: Path, out: Path) -> None:
    results = gather(grids.compare(folder, out))
    assert results.as_json()["margins"] == []
    assert not any(table.title == "Margins" for table in tables(results))
