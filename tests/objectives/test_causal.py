"""Masked inputs of a causal model: what is read in training, and what stays as it was."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from foreword.data.rng import RowRng
from foreword.errors import UserError
from foreword.objectives.causal import Causal
from foreword.objectives.sum import Sum
from foreword.runs.corpus import corpus
from foreword.runs.measure import measure_rows
from foreword.runs.run_folder import Run
from foreword.runs.setup import TrainingSetup, set_up_training
from foreword.runs.staged import StagedBatches
from foreword.settings import config
from foreword.testing.cases import find_cases
from foreword.testing.objectives import CASE_CHECKS, OBJECTIVE_CHECKS, corrupt
from foreword.types import MaskedInputs, ReadWhole
from tests import shelf
from tests.train import runs

from ..contracts.cases import SEED, Case, rows, vocab

HIDES = Causal(masked_inputs=0.3)
CASE = Case("causal", "decoder", "transformer", HIDES)
MASK = vocab().id("[MASK]")


@pytest.mark.parametrize("check", [*OBJECTIVE_CHECKS, *CASE_CHECKS], ids=lambda c: c.__name__)
def test_masked_inputs_keep_the_contract(check: Any) -> None:
    check(HIDES if check in OBJECTIVE_CHECKS else CASE)


def test_a_share_of_the_ordinary_tokens_is_read_as_mask() -> None:
    given = rows([[30, 10], [12]] * 1000)
    read = corrupt(HIDES, given).require(MaskedInputs).ids
    is_masked = read == MASK
    ordinary = ~vocab().is_special[given.ids] & (given.documents >= 0)
    assert np.array_equal(read[~is_masked], given.ids[~is_masked])
    assert not is_masked[~ordinary].any()
    assert is_masked[ordinary].mean() == pytest.approx(0.3, abs=0.01)
    everything = corrupt(Causal(masked_inputs=1.0), given).require(MaskedInputs).ids
    assert (everything[ordinary] == MASK).all()


def test_targets_and_weights_are_those_of_whole_inputs() -> None:
    given = rows([[30, 10], [12], [40]])
    plain, masked = Case("causal", "decoder", "transformer").batch(given), CASE.batch(given)
    assert (masked.ids == MASK).any() and not (plain.ids == MASK).any()
    assert torch.equal(masked.targets, plain.targets)
    assert torch.equal(masked.weights, plain.weights)
    assert torch.equal(masked.positions, plain.positions)
    assert HIDES.count(masked) == HIDES.count(plain)


def test_every_layout_of_the_objective_reads_the_masked_inputs() -> None:
    given = rows([[40], [30]])
    layouts = {case.layout for case in find_cases(HIDES)}
    assert {"decoder", "hybrid"} <= layouts
    for layout in layouts:
        assert (replace(CASE, layout=layout).batch(given).ids == MASK).any(), layout


def test_a_share_of_0_changes_nothing_and_draws_nothing() -> None:
    given = rows([[30], [12]])
    rng = RowRng(SEED, given.numbers)
    example = Causal(masked_inputs=0.0).corrupt(given, rng, vocab())
    assert example.part(MaskedInputs) is None
    assert np.array_equal(rng.uniform(3), RowRng(SEED, given.numbers).uniform(3))
    assert config.to_table(Causal(), with_defaults=False) == {}  # keys of results stay


def test_a_tokenizer_without_mask_is_refused() -> None:
    given, bare = rows([[30]]), replace(vocab(), special={"</s>": 6})
    with pytest.raises(UserError, match=r"no special token \[MASK\]"):
        HIDES.corrupt(given, RowRng(SEED, given.numbers), bare)
    Causal().corrupt(given, RowRng(SEED, given.numbers), bare)


def test_rows_that_are_read_whole_have_no_masked_inputs_in_a_sum_either() -> None:
    given = rows([[30], [12]])
    for objective in (HIDES, Sum((HIDES,))):
        assert corrupt(objective, given).part(MaskedInputs) is not None
        assert corrupt(objective, given.with_part(ReadWhole())).part(MaskedInputs) is None


@pytest.fixture
def text() -> Path:
    return shelf.made("text", runs.write_text)


def ready(share: Any, text: Path, run: Path) -> TrainingSetup:
    made = config.merge(runs.table("decoder"), {"objective": {"masked_inputs": share}})
    run = runs.begin(runs.build(made), text, run)
    return set_up_training(Run(run).recipe, *corpus(Run(run), runs.stage))


def test_held_out_text_is_read_whole_in_every_stage(text: Path, tmp_path: Path) -> None:
    setup = ready({"from": 0.8, "to": 0.4}, text, tmp_path / "run")
    mask = setup.vocab.id("[MASK]")
    shares = []
    batches = StagedBatches(setup.feed, setup.recipe.segments())
    batches.begins = list(range(len(setup.recipe.segments())))
    for step in (0, len(batches.begins) - 1):
        ids = np.concatenate([batch.ids for batch in batches.micro_batches(step)])
        shares.append((ids == mask).mean())
    assert shares[0] > shares[1] > 0.2
    assert setup.heldout is not None
    for segment in setup.recipe.segments():
        feed = replace(setup.heldout, objective=segment.recipe.objective)
        assert not any((batch.ids == mask).any() for batch in feed.heldout(8))


def test_the_held_out_loss_is_that_of_the_text(text: Path, tmp_path: Path) -> None:
    losses = []
    for share in (0.0, 0.5):
        setup = ready(share, text, tmp_path / f"{share}")
        measure = partial(measure_rows, setup.recipe, setup.model, rows=6, dtype=torch.float32)
        assert setup.heldout is not None
        losses.append(measure(feed=setup.heldout))
    assert losses[0].loss == losses[1].loss
    assert losses[1].predicts_all and not losses[1].is_bound
