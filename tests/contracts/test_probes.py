"""The contract of every probe, checked for every file in `probes/`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure
from torch import nn

from foreword.errors import UserError
from foreword.models.ngram import NGram
from foreword.nn.model import Model
from foreword.objectives.span_corruption import SpanCorruption
from foreword.probes._contract import Finding, Probe, ProbedModel
from foreword.probes._suite import Suite
from foreword.runs.run_folder import open_run
from foreword.runs.trained_model import TrainedModel
from foreword.settings import config, kinds
from foreword.settings.kinds import Part, name_of
from foreword.testing.probes import MODELS, PROBE_CHECKS, plotted

from ..probes.conftest import few_draws, make_run, text, tokenizer, words  # noqa: F401 - fixtures

PROBES = kinds.names("probes")
every_probe = pytest.mark.parametrize("name", PROBES)
Make = Callable[[str], Path]
MEASURES = {  # the function that measures, once all models are checked; of suites, `answers`
    "analogies": "_count_right",
    "attention": "_summary",
    "gradient_reach": "_measure_norms",
    "loss_by_position": "_losses",
    "memorisation": "_figures",
    "sentence_similarity": "_cosines_by_layer",
    "similarity": "rank_correlation",
    "tagging": "_fitted",
    "word_in_context": "_pairs_by_layer",
}


# Files of the probes that require some, in `suites/`, by setting.
SUITES = Path(__file__).parent / "suites"
FILES = {
    "crows_pairs": {"files": "pairs.csv"},
    "stereoset": {"files": "stereoset.json"},
    "winobias": {"files": "winobias"},
    "winogender": {"files": "winogender"},
    "choice": {"files": "choice.jsonl"},
    "cloze": {"files": "cloze.jsonl"},
    "cola_zero_shot": {"files": "cola.tsv"},
    "lama": {"files": "facts.jsonl"},
    "lambada": {"files": "passages.jsonl"},
    "memorisation": {"train": "train.txt", "canaries": "canaries.txt"},
    "minimal_pairs": {"files": "pairs.jsonl"},
    "sentence_similarity": {"file": "pairs.tsv"},
    "tagging": {"train": "train.conllu", "dev": "dev.conllu"},
}
SETTINGS: dict[str, dict[str, Any]] = {
    "attention": {"sentence": "the bank of the river"},
    "in_context": {"task": "translate", "shots": [0, 1], "draws": 2, "limit": 2},
    "memorisation": {"prefixes": [2, 6], "continuation": 3, "passages": 5, "candidates": 8},
}
FAMILIES = {"attention": ("decoder", "encoder")}  # that a probe supports; default: MODELS


def build(name: str) -> Any:
    files = {key: str(SUITES / file) for key, file in FILES.get(name, {}).items()}
    table = {"kind": name, **SETTINGS.get(name, {}), **files}
    return config.build_kind(Part("probes"), table, "probe")


def probed(run: Path, text_file: Path) -> ProbedModel:
    return ProbedModel(run.name, open_run(run, "cpu"), (str(text_file),))


def measure_two(probe: Probe, make: Make, text_file: Path) -> tuple[list[ProbedModel], Finding]:
    families = FAMILIES.get(name_of(probe), MODELS)
    models = [probed(make(family), text_file) for family in families]
    return models, probe.measure(models)


def counts(probed_model: ProbedModel) -> TrainedModel:
    """Return a model of counts, without states or gradients."""
    backbone = NGram().build(probed_model.trained.vocab.size)
    model = Model(backbone, nn.ModuleDict({"token": backbone.build_token_head()}))
    return replace(
        probed_model.trained,
        model=model,
        recipe=replace(probed_model.trained.recipe, model=NGram()),
    )


def answering(probed_model: ProbedModel) -> TrainedModel:
    """Return a model of parallel text, which gives a text a probability as a translation only."""
    recipe = probed_model.trained.recipe
    read = replace(recipe.read, target="en")
    recipe = replace(recipe, objective=SpanCorruption(), read=read)
    return replace(probed_model.trained, recipe=recipe)


UNSUPPORTED = {  # by probe; default: `counts`
    name: answering
    for name in PROBES
    if issubclass(kinds.load("probes", name), Suite) or name == "memorisation"
}


@pytest.mark.product
@every_probe
@pytest.mark.parametrize("check", PROBE_CHECKS, ids=lambda check: check.__name__)
def test_every_probe_keeps_the_contract(
    check: Callable[[Probe, Sequence[str], Sequence[str]], None], name: str
) -> None:
    check(build(name), words(), FAMILIES.get(name, MODELS))


@pytest.mark.product(few=3)
@every_probe
def test_a_plot_of_too_many_runs_shows_the_first_and_notes_it(
    name: str,
    make_run: Make,  # noqa: F811
    text: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    is_suite = issubclass(kinds.load("probes", name), Suite)
    for module in ("_suite" if is_suite else name, "_marks"):
        monkeypatch.setattr(f"foreword.probes.{module}.MAX_RUNS", 1)
    _, result = measure_two(build(name), make_run, text)
    figure = Figure(layout="constrained")
    result.plot(figure)
    assert len(plotted(figure)) == 1
    assert "the first 1 of 2 runs" in figure.axes[0].get_title() + figure.get_suptitle()


@pytest.mark.product(few=5)
@every_probe
def test_an_unsupported_model_is_refused_before_any_is_measured(
    name: str,
    make_run: Make,  # noqa: F811
    text: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("measured")

    kind = kinds.load("probes", name)
    if issubclass(kind, Suite):
        monkeypatch.setattr(kind, "answers", fail)
    else:
        monkeypatch.setattr(kind.__module__ + "." + MEASURES[name], fail)
    one = probed(make_run("decoder"), text)
    other = replace(one, trained=replace(UNSUPPORTED.get(name, counts)(one), source=Path("other")))
    with pytest.raises(UserError, match=r"^other: "):
        build(name).measure([one, other])
