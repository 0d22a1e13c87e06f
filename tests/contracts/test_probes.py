"""The contract of every probe, checked for every file in `probes/`."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from matplotlib.figure import Figure
from torch import nn

from foreword import config, kinds
from foreword.errors import UserError
from foreword.evaluate.prompting import PromptedModel
from foreword.kinds import Part
from foreword.models.ngram import NGram
from foreword.nn.model import Model
from foreword.probes._contract import Finding, ProbedModel
from foreword.runs.trained_model import open_run
from foreword.text.tokenizer import Tokenizer

from ..probes.conftest import make_run, text, tokenizer  # noqa: F401 - fixtures

PROBES = kinds.names("probes")
every_probe = pytest.mark.parametrize("name", PROBES)
Make = Callable[[str], Path]
MEASURES = {  # the function that measures, once all models are checked
    "analogies": "_count_right",
    "gradient_reach": "_measure_norms",
    "similarity": "_correlation",
    "word_in_context": "_pairs_by_layer",
}


def build(name: str, **settings: Any) -> Any:
    return config.build_kind(Part("probes"), {"kind": name, **settings}, "probe")


def probed(run: Path, of: Path) -> ProbedModel:
    return ProbedModel(run.name, PromptedModel.of(open_run(run, "cpu")), (str(of),))


def measure_two(name: str, make: Make, of: Path) -> tuple[list[ProbedModel], Finding]:
    models = [probed(make(family), of) for family in ("decoder", "lstm")]
    return models, build(name).measure(models)


def test_probes_are_a_folder_of_kinds() -> None:
    assert "probes" in kinds.folders()
    assert PROBES


@every_probe
def test_a_probe_is_a_record_of_its_settings(name: str) -> None:
    assert build(name) == build(name) and hash(build(name)) == hash(build(name))
    assert build(name, **config.to_table(build(name))) == build(name)
    assert isinstance(build(name).reads_text, bool)


@every_probe
def test_rows_and_details_are_flat_with_equal_keys(name: str, make_run: Make, text: Path) -> None:  # noqa: F811
    models, found = measure_two(name, make_run, text)
    for records in (found.rows, found.details):
        assert {row["run"] for row in records} == {one.label for one in models}
        assert len({tuple(row) for row in records}) == 1
        assert next(iter(records[0])) == "run"
        values = [value for row in records for value in row.values()]
        assert all(v is None or isinstance(v, str | int | float) for v in values)
        assert json.loads(json.dumps(list(records))) == [dict(row) for row in records]
    assert found.title and all(found.notes)


@every_probe
def test_a_probe_plots_its_finding(name: str, make_run: Make, text: Path) -> None:  # noqa: F811
    _, found = measure_two(name, make_run, text)
    figure = Figure()
    found.plot(figure)
    assert figure.axes and all(axes.get_xlabel() for axes in figure.axes)


@every_probe
def test_a_plot_has_a_title_and_names_the_runs(
    name: str,
    make_run: Make,  # noqa: F811
    text: Path,  # noqa: F811
) -> None:
    models, found = measure_two(name, make_run, text)
    figure = Figure(layout="constrained")
    found.plot(figure)
    assert all(axes.get_title() for axes in figure.axes)
    (legend,) = figure.legends
    named = [label.get_text() for label in legend.get_texts()]
    assert all(label.startswith(one.label) for label, one in zip(named, models, strict=True))


@every_probe
def test_a_plot_of_too_many_runs_shows_the_first_and_says_so(
    name: str,
    make_run: Make,  # noqa: F811
    text: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (name, "_marks"):
        monkeypatch.setattr(f"foreword.probes.{module}.MAX_RUNS", 1)
    _, found = measure_two(name, make_run, text)
    figure = Figure(layout="constrained")
    found.plot(figure)
    assert len(figure.legends[0].get_texts()) == 1
    assert "the first 1 of 2 runs" in figure.axes[0].get_title()


@every_probe
def test_an_unsupported_model_is_refused_before_any_is_measured(
    name: str,
    make_run: Make,  # noqa: F811
    text: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("measured")

    module = importlib.import_module(f"foreword.probes.{name}")
    monkeypatch.setattr(module, MEASURES[name], fail)
    one = probed(make_run("decoder"), text)
    counts = NGram().build(one.trained.vocab.size)
    model = Model(counts, nn.ModuleDict({"token": counts.build_token_head()}))
    other = replace(one, trained=replace(one.trained, model=model, source=Path("counts")))
    with pytest.raises(UserError, match=r"^counts: "):
        build(name).measure([one, other])


@every_probe
def test_measuring_is_repeatable_and_leaves_models_unchanged(
    name: str,
    make_run: Make,  # noqa: F811
    text: Path,  # noqa: F811
) -> None:
    run = make_run("decoder")
    one = probed(run, text)
    before = {key: value.clone() for key, value in one.trained.model.state_dict().items()}
    drawn = torch.get_rng_state()
    first, again = build(name).measure([one]), build(name).measure([one])
    assert list(first.rows) == list(again.rows) and list(first.details) == list(again.details)
    assert torch.equal(torch.get_rng_state(), drawn)
    assert not one.trained.model.training
    for key, value in one.trained.model.state_dict().items():
        assert torch.equal(value, before[key])
    assert all(p.grad is None for p in one.trained.model.parameters())


@every_probe
def test_models_are_measured_independently(name: str, make_run: Make, text: Path) -> None:  # noqa: F811
    models, both = measure_two(name, make_run, text)
    alone = build(name).measure(models[:1])
    shown = [row for row in both.details if row["run"] == models[0].label]
    assert shown == list(alone.details)


def test_the_fixture_tokenizer_knows_the_words(tokenizer: Tokenizer) -> None:  # noqa: F811
    assert tokenizer.vocab.special["[UNK]"] not in tokenizer.encode("the bank of the river")
