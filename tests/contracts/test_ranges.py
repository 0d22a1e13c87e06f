"""Every numeric setting states its range, and no value beyond it is accepted."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from itertools import product
from typing import Any, get_args

import numpy as np
import pytest

from foreword.comparison.grid import Cell, Grid, GridTask
from foreword.data.rng import RowRng
from foreword.errors import UserError
from foreword.evaluation.beam import Beams
from foreword.evaluation.sampling import Sampling
from foreword.nn.init import initialise
from foreword.nn.model import Model
from foreword.objectives.masked import Masked
from foreword.objectives.span_corruption import SpanCorruption
from foreword.runs.recipe import Recipe
from foreword.settings import config, kinds
from foreword.settings.ranges import LARGEST, check, hints_of, range_of
from foreword.train.budget import Budget
from foreword.train.step import train_step
from foreword.tuning.settings import TuneSettings

from .cases import SEED, TRAINED, Case, rows, vocab

# What cannot be made without being told something.
GIVEN: dict[str, dict[str, Any]] = {
    "Sum": {"terms": (Masked(),)},
    "Mixture": {"objectives": (SpanCorruption(),), "modes": (), "shares": (1.0,)},
    "Grid": {"cells": (Cell("bert_tiny"),)},
    "GridTask": {"name": "task", "train": "train.tsv", "dev": "dev.tsv"},
    "Tagging": {"train": "train.conllu", "dev": "dev.conllu"},
    "SentenceSimilarity": {"file": "pairs.tsv"},
    "Cell": {"recipe": "bert_tiny"},
    "Claim": {
        "sentence": "One is better",
        "source": "a lecture",
        "measure": "loss",
        "rises": {"a": 1.0, "b": 2.0},
    },
    "ClaimTerm": {"cell": "one"},
    "Source": {"name": "web", "path": "web", "weight": 1.0},
    "Budget": {"unit": "steps", "amount": 10},
}
# One element each, where the default has none.
FILLED = {
    "Multilabel": {"thresholds": (0.5,)},
    "Sum": {"weights": (1.0,)},
    "Mixture": {"shares": (1.0,)},
}
WILD = (math.nan, math.inf, -math.inf, 0, -1, -0.5, 7.5, 2**63, -(2**63), 10**400, 1e300, True)


def sections(cls: Any) -> Iterator[Any]:
    """Return a dataclass and the dataclasses of its fields, without kinds."""
    yield cls
    for f in fields(cls):
        hint = hints_of(cls)[f.name]
        for inner in (hint, *get_args(hint)):
            if isinstance(inner, type) and is_dataclass(inner) and "part" not in f.metadata:
                yield from sections(inner)


def every_class() -> list[Any]:
    folders = [folder for folder in kinds.folders() if not folder.startswith("verbs")]
    every = [kinds.load(folder, name) for folder in folders for name in kinds.names(folder)]
    every += [Recipe, TuneSettings, Grid, GridTask, Budget, Sampling, Beams]
    classes = {c: None for cls in every if is_dataclass(cls) for c in sections(cls)}
    return list(classes)


def leaves(hint: Any) -> Iterator[Any]:
    """The types of the numbers in a type, each with its range if it states one."""
    if hint in (int, float) or range_of(hint) is not None:
        yield hint
    else:
        for arg in get_args(hint):
            yield from leaves(arg)


CLASSES = every_class()
NUMBERS = {
    cls: names
    for cls in CLASSES
    if (names := [n for n, hint in hints_of(cls).items() if next(leaves(hint), None) is not None])
}
every_class_with_numbers = pytest.mark.parametrize("cls", NUMBERS, ids=lambda cls: cls.__name__)


def replaced(value: Any, new: Any) -> Iterator[Any]:
    """The value with each of its numbers in turn replaced."""
    if isinstance(value, tuple):
        for n, item in enumerate(value):
            for changed in replaced(item, new):
                yield (*value[:n], changed, *value[n + 1 :])
    else:
        yield new


def given(cls: Any, name: str) -> tuple[dict[str, Any], Any]:
    """Return the settings that a class requires, and a value of the setting `name`."""
    reads_files = any(f.name == "files" and f.default is MISSING for f in fields(cls))
    settings = dict(GIVEN.get(cls.__name__, {"files": "questions.jsonl"} if reads_files else {}))
    value = FILLED.get(cls.__name__, {}).get(name)
    return settings, getattr(cls(**settings), name) if value is None else value


def test_numeric_settings_of_every_folder_are_covered() -> None:
    names = {f"{cls.__name__}.{name}" for cls, names in NUMBERS.items() for name in names}
    assert len(names) > 150
    assert {"AdamW.lr", "Warmup.share", "TrainSettings.seed", "Spelling.filters"} <= names


@every_class_with_numbers
def test_numbers_state_a_range_of_two_ends(cls: Any) -> None:
    numbers = [(name, leaf) for name in NUMBERS[cls] for leaf in leaves(hints_of(cls)[name])]
    for name, leaf in numbers:
        stated = range_of(leaf)
        assert stated is not None, f"{cls.__name__}.{name}: use a type of foreword.settings.ranges"
        number, interval = stated
        assert number in (int, float)
        low = interval.gt if interval.ge is None else interval.ge
        high = interval.lt if interval.le is None else interval.le
        assert math.isfinite(low) and math.isfinite(high) and low < high
        assert number is float or -(2**63) < low < high < 2**63


@every_class_with_numbers
def test_a_number_out_of_range_is_refused_by_name(cls: Any) -> None:
    for name in NUMBERS[cls]:
        settings, value = given(cls, name)
        for changed in (new for wild in WILD for new in replaced(value, wild)):
            try:
                made = cls(**{**settings, name: changed})
            except (ValueError, UserError) as error:
                assert str(error).startswith(name) and "\n" not in str(error)
            else:
                check(hints_of(cls)[name], getattr(made, name), name)


@every_class_with_numbers
def test_a_recipe_with_nan_or_infinity_is_refused_by_name(cls: Any) -> None:
    for name, wild in product(NUMBERS[cls], (math.nan, math.inf, 10**400)):
        settings, value = given(cls, name)
        table = config.to_table(cls(**settings))
        changed = next(replaced(value, wild))
        with pytest.raises(UserError) as caught:
            config.build(cls, {**table, name: changed}, "part")
        assert str(caught.value).startswith(f"part.{name}") and "\n" not in str(caught.value)


def ends(hint: Any) -> list[Any]:
    """The least and the greatest value of a range, but no size that would fill the memory."""
    stated = range_of(hint)
    assert stated is not None
    number, interval = stated
    low = np.nextafter(interval.gt, 1.0) if interval.ge is None else interval.ge
    high = np.nextafter(interval.lt, 0.0) if interval.le is None else interval.le
    return [number(end) if end < LARGEST else number(16) for end in (low, high)]


def at_the_ends(folder: str) -> list[Any]:
    return [
        pytest.param(name, setting, end, id=f"{name}.{setting}={end:g}")
        for name in kinds.names(folder)
        for setting, hint in hints_of(kinds.load(folder, name)).items()
        if range_of(hint) is not None
        for end in ends(hint)
    ]


@pytest.mark.product
@pytest.mark.parametrize(("kind", "setting", "end"), at_the_ends("train/optimizers"))
def test_optimizers_take_finite_steps_at_the_ends_of_ranges(
    kind: str, setting: str, end: Any
) -> None:
    case = Case("causal", "decoder", "transformer")
    model, batch = case.build(), case.batch(rows([[16]] * 2))
    optimizer = kinds.load("train/optimizers", kind)(**{setting: end}).build(model)
    for _ in range(2):
        result = train_step(
            model,
            optimizer,
            [batch],
            lambda batch: case.loss(model, batch),
            [SEED],
        )
        assert result.is_finite
    assert all(bool(p.isfinite().all()) for p in model.parameters())


@pytest.mark.parametrize(("kind", "setting", "end"), at_the_ends("train/schedules"))
def test_schedules_stay_between_0_and_1_at_the_ends_of_ranges(
    kind: str, setting: str, end: Any
) -> None:
    try:
        schedule = kinds.load("train/schedules", kind)(**{setting: end})
    except ValueError as error:
        pytest.skip(str(error))
    for step in range(100):
        assert 0 <= schedule.factor(step / 100, step, 100) <= 1 + 1e-12


@pytest.mark.product
@pytest.mark.parametrize(("kind", "setting", "end"), at_the_ends("objectives"))
def test_objectives_have_finite_losses_at_the_ends_of_ranges(
    kind: str, setting: str, end: Any
) -> None:
    case = next(case for case in TRAINED if case.objective == kind)
    words = vocab()
    try:
        objective = kinds.load("objectives", kind)(**{setting: end})
        objective.require_room(32)
    except ValueError as error:
        pytest.skip(str(error))
    packed = rows([[32], [16, 16]])
    example = objective.corrupt(packed, RowRng(SEED, packed.numbers), words)
    batch = kinds.load("layouts", case.layout)().arrange(example, words).to("cpu")
    backbone = case.model_settings().build(words.size)
    model = Model(backbone, objective.heads(backbone, words))
    initialise(model, SEED)
    loss = objective.loss(model, batch)
    assert bool(loss.total.isfinite()) and float(loss.count) >= 0
