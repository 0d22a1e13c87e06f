"""What every probe promises, for every file in `probes/`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from matplotlib.figure import Figure

from foreword import config, kinds
from foreword.evaluate.subject import Subject
from foreword.kinds import Part
from foreword.probes._contract import Finding, Specimen
from foreword.text.tokenizer import Tokenizer
from foreword.train.opened import open_run

from ..probes.conftest import make_run, text, tokenizer  # noqa: F401 - fixtures

PROBES = kinds.names("probes")
every_probe = pytest.mark.parametrize("name", PROBES)
Make = Callable[[str], Path]


def ask(name: str, **settings: Any) -> Any:
    return config.build_kind(Part("probes"), {"kind": name, **settings}, "probe")


def specimen(run: Path, of: Path) -> Specimen:
    return Specimen(run.name, Subject.of(open_run(run, "cpu")), run, (str(of),))


def look(name: str, make: Make, of: Path) -> tuple[list[Specimen], Finding]:
    specimens = [specimen(make(family), of) for family in ("decoder", "lstm")]
    return specimens, ask(name).measure(specimens)


def test_probes_are_a_folder_of_kinds() -> None:
    assert "probes" in kinds.folders()
    assert PROBES


@every_probe
def test_its_settings_are_a_plain_record(name: str) -> None:
    assert ask(name) == ask(name) and hash(ask(name)) == hash(ask(name))
    assert ask(name, **config.to_table(ask(name))) == ask(name)
    assert isinstance(ask(name).reads_text, bool)


@every_probe
def test_the_table_is_flat_and_of_one_form(name: str, make_run: Make, text: Path) -> None:  # noqa: F811
    specimens, found = look(name, make_run, text)
    for records in (found.rows, found.details):
        assert {row["run"] for row in records} == {s.name for s in specimens}
        assert len({tuple(row) for row in records}) == 1
        assert next(iter(records[0])) == "run"
        values = [value for row in records for value in row.values()]
        assert all(v is None or isinstance(v, str | int | float) for v in values)
        assert json.loads(json.dumps(list(records))) == [dict(row) for row in records]
    assert found.title and all(found.notes)


@every_probe
def test_it_draws_a_plot(name: str, make_run: Make, text: Path) -> None:  # noqa: F811
    _, found = look(name, make_run, text)
    figure = Figure()
    found.draw(figure)
    assert figure.axes and all(axes.get_xlabel() for axes in figure.axes)


@every_probe
def test_it_finds_the_same_again_and_leaves_models_as_they_were(
    name: str,
    make_run: Make,  # noqa: F811
    text: Path,  # noqa: F811
) -> None:
    run = make_run("decoder")
    one = specimen(run, text)
    before = {key: value.clone() for key, value in one.subject.model.state_dict().items()}
    drawn = torch.get_rng_state()
    first, again = ask(name).measure([one]), ask(name).measure([one])
    assert list(first.rows) == list(again.rows) and list(first.details) == list(again.details)
    assert torch.equal(torch.get_rng_state(), drawn)
    assert not one.subject.model.training
    for key, value in one.subject.model.state_dict().items():
        assert torch.equal(value, before[key])
    assert all(p.grad is None for p in one.subject.model.parameters())


@every_probe
def test_a_model_beside_it_changes_nothing(name: str, make_run: Make, text: Path) -> None:  # noqa: F811
    specimens, both = look(name, make_run, text)
    alone = ask(name).measure(specimens[:1])
    shown = [row for row in both.details if row["run"] == specimens[0].name]
    assert shown == list(alone.details)


def test_the_fixture_knows_the_words(tokenizer: Tokenizer) -> None:  # noqa: F811
    assert tokenizer.vocab.special["[UNK]"] not in tokenizer.encode("the bank of the river")
