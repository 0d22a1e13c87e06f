"""The contract of probes: a function for each promise."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import is_dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from matplotlib.figure import Figure

from foreword.disk import stored
from foreword.probes._contract import Finding, Probe, ProbedModel
from foreword.settings import config
from foreword.testing.models import tiny_model
from foreword.testing.tokenizers import SENTENCES

MODELS = ("decoder", "lstm")


def check_probe(
    probe: Probe, texts: Sequence[str] = SENTENCES, models: Sequence[str] = MODELS
) -> None:
    """Check all that a probe promises, on two tiny models.

    Args:
        probe: settings of the kind, a frozen dataclass.
        texts: the models' words; also the text that is probed.
        models: two of `foreword.testing.models.FAMILIES` that the probe supports.

    Raises:
        AssertionError: a promise is broken.
    """
    assert is_dataclass(type(probe)), "a probe is a frozen dataclass"
    for check in PROBE_CHECKS:
        check(probe, texts, models)


@contextmanager
def probed(texts: Sequence[str], names: Sequence[str] = MODELS) -> Iterator[list[ProbedModel]]:
    """Yield two tiny models with their text."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "text.txt"
        file.write_text("\n\n".join(texts), encoding="utf-8")
        yield [ProbedModel(name, tiny_model(name, texts), (str(file),)) for name in names]


def _measure(
    probe: Probe, texts: Sequence[str], names: Sequence[str]
) -> tuple[list[ProbedModel], Finding]:
    return _measure_once(probe, tuple(texts), tuple(names))  # type: ignore[arg-type]


@functools.lru_cache(1)
def _measure_once(
    probe: Probe, texts: tuple[str, ...], names: tuple[str, ...]
) -> tuple[list[ProbedModel], Finding]:
    """Measure two models; the checks of a probe, one after another, look at one measurement."""
    with probed(texts, names) as models:
        return models, probe.measure(models)


def check_its_settings_are_a_plain_record(
    probe: Probe, texts: Sequence[str], names: Sequence[str] = MODELS
) -> None:
    """Check that the settings survive a table, and that it says whether it reads text."""
    del texts, names
    assert config.build(type(probe), config.to_table(probe), "probe") == probe
    assert isinstance(hash(probe), int)
    assert isinstance(probe.reads_text, bool), "reads_text is not stated"


def check_the_tables_are_flat(
    probe: Probe, texts: Sequence[str], names: Sequence[str] = MODELS
) -> None:
    """Check that each model has rows of the same keys, `run` first, that are plain JSON."""
    models, finding = _measure(probe, texts, names)
    for records in (finding.rows, finding.details):
        assert {row["run"] for row in records} == {model.label for model in models}
        assert len({tuple(row) for row in records}) == 1, "rows have different keys"
        assert next(iter(records[0])) == "run", "the first key is not run"
        values = [value for row in records for value in row.values()]
        assert all(v is None or isinstance(v, str | int | float) for v in values), "not flat"
        assert json.loads(stored.to_json(list(records))) == [dict(row) for row in records]
    assert bool(finding.measure) == bool(finding.scores), "scores and what they are go together"
    assert not finding.scores or set(finding.scores) == {model.label for model in models}
    assert finding.title, "there is no title"
    assert all(finding.notes), "a note is empty"


def check_its_plot_is_labelled(
    probe: Probe, texts: Sequence[str], names: Sequence[str] = MODELS
) -> None:
    """Check that the plot has titles, labels of its axes, and names the models."""
    models, finding = _measure(probe, texts, names)
    figure = Figure(layout="constrained")
    finding.plot(figure)
    assert figure.axes, "the plot is empty"
    shared = figure.get_supxlabel()
    assert all(axes.get_xlabel() or shared for axes in figure.axes), "an axis has no label"
    assert all(axes.get_title() for axes in figure.axes), "a plot has no title"
    labels = plotted(figure)
    assert all(label.startswith(model.label) for label, model in zip(labels, models, strict=True))


def plotted(figure: Figure) -> list[str]:
    """Return the names of a plot's models: from its one legend, or the labels of their panels."""
    if figure.legends:
        (legend,) = figure.legends
        return [label.get_text() for label in legend.get_texts()]
    labels = (axes.get_ylabel() for axes in figure.axes)
    return list(dict.fromkeys(label.partition("\n")[0] for label in labels if label))


def check_it_changes_nothing(
    probe: Probe, texts: Sequence[str], names: Sequence[str] = MODELS
) -> None:
    """Check that a second measurement is equal, and that models and torch's state are unchanged."""
    with probed(texts, names) as models:
        network = models[0].trained.model
        before = {key: value.clone() for key, value in network.state_dict().items()}
        state = torch.get_rng_state()
        first, again = probe.measure(models[:1]), probe.measure(models[:1])
        assert list(first.rows) == list(again.rows), "a second measurement differs"
        assert list(first.details) == list(again.details), "a second measurement differs"
        assert torch.equal(torch.get_rng_state(), state), "torch's random state has moved"
        assert not network.training, "the model is left in training mode"
        for key, value in network.state_dict().items():
            assert torch.equal(value, before[key]), f"{key} has changed"
        assert all(p.grad is None for p in network.parameters()), "gradients are left"


def check_a_model_beside_it_changes_nothing(
    probe: Probe, texts: Sequence[str], names: Sequence[str] = MODELS
) -> None:
    """Check that a model has the same details alone and with another."""
    models, finding = _measure(probe, texts, names)
    with probed(texts, names) as again:
        alone = probe.measure(again[:1])
    details = [row for row in finding.details if row["run"] == models[0].label]
    assert details == list(alone.details), "another model changes its details"


PROBE_CHECKS: tuple[Callable[[Probe, Sequence[str], Sequence[str]], None], ...] = (
    check_its_settings_are_a_plain_record,
    check_the_tables_are_flat,
    check_its_plot_is_labelled,
    check_it_changes_nothing,
    check_a_model_beside_it_changes_nothing,
)
