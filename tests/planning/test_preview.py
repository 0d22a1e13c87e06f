"""The decoded rows of a batch: what is masked, read and predicted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from foreword.planning.estimate import steps_of
from foreword.planning.preview import ROLES, preview
from foreword.runs.corpus import corpus
from foreword.runs.run_folder import Run
from foreword.runs.setup import TrainingSetup, set_up_training
from foreword.runs.sizes import count_by_part
from foreword.train.budget import Budget
from foreword.types import NextToken, Queries
from foreword.verbs.check import COLOURS
from tests.train import runs


@pytest.fixture
def text(tmp_path: Path) -> Path:
    return runs.write_text(tmp_path / "text")


def ready(family: str, text: Path, run_folder: Path) -> TrainingSetup:
    made = runs.recipe(family)
    runs.begin(made, text, run_folder)
    return set_up_training(made, *corpus(Run(run_folder), runs.stage))


def test_shared_weights_count_once(text: Path, tmp_path: Path) -> None:
    setup = ready("encoder_decoder", text, tmp_path / "run")
    parts = count_by_part(setup.model)
    assert list(parts) == ["embedding", "encoder", "decoder", "heads"]
    assert sum(parts.values()) == setup.model.count_parameters()
    assert parts["heads"] == 0  # tied


def test_masked_rows_show_masked_tokens_and_targets(text: Path, tmp_path: Path) -> None:
    setup = ready("encoder", text, tmp_path / "run")
    batch = setup.feed.micro_batches(0)[0]
    row = preview(setup.feed, setup.tokenizer, 1, 100)[0]
    assert row.source == ()
    marks = np.array([piece.mark for piece in row.inputs])
    is_scored = batch.weights[0] > 0
    hidden = np.isin(marks, ["masked", "random", "kept"])
    assert (hidden == is_scored).all()
    for n, (read, expected) in enumerate(zip(row.inputs, row.targets, strict=True)):
        assert read.text == setup.tokenizer.token(int(batch.ids[0, n]))
        if is_scored[n]:
            assert expected.text == setup.tokenizer.token(int(batch.targets[0, n]))
            assert (read.mark == "masked") == (read.text == "[MASK]")
            if read.mark == "kept":
                assert read.text == expected.text
        else:
            assert expected.mark == "unscored"
    firsts = [piece.mark for piece in row.targets].index("first")
    assert firsts == np.flatnonzero(is_scored)[0]


def test_causal_rows_show_the_first_token_scored(text: Path, tmp_path: Path) -> None:
    setup = ready("decoder", text, tmp_path / "run")
    rows = preview(setup.feed, setup.tokenizer, 4, 100)
    next_token = setup.feed.packed.rows(np.arange(4)).require(NextToken).ids
    for row, after in zip(rows, next_token, strict=True):
        assert [piece.mark for piece in row.targets].count("first") == 1
        for n, expected in enumerate(row.targets[:-1]):
            if expected.mark != "unscored":
                assert expected.text == row.inputs[n + 1].text
        assert (row.targets[-1].mark == "unscored") == (after < 0), "unless its document goes on"


def test_a_query_stream_shows_its_targets_in_place(text: Path, tmp_path: Path) -> None:
    setup = ready("xlnet", text, tmp_path / "run")
    batch = setup.feed.micro_batches(0)[0]
    row = preview(setup.feed, setup.tokenizer, 1, 100)[0]
    at = [n for n, piece in enumerate(row.targets) if piece.mark != "unscored"]
    assert at == batch.require(Queries).at[0].tolist()
    for n in at:  # nothing is hidden behind another token
        assert row.targets[n].text == row.inputs[n].text
        assert row.inputs[n].mark == "plain"


def test_span_rows_show_source_sentinels_and_target(text: Path, tmp_path: Path) -> None:
    setup = ready("encoder_decoder", text, tmp_path / "run")
    row = preview(setup.feed, setup.tokenizer, 1, 100)[0]
    sentinels = [piece.text for piece in row.source if piece.mark == "sentinel"]
    assert sentinels[0] == "<extra_id_0>"
    spelled = [p.text for p in row.targets if p.text.startswith("<extra_id")]
    assert spelled == sentinels
    assert row.targets[0].mark == "first"


def test_every_mark_has_a_colour_and_a_meaning() -> None:
    assert set(COLOURS) == set(ROLES)


def test_a_budget_in_any_unit_becomes_steps() -> None:
    prices = {"tokens": 100.0, "operations": 1e6, "seconds": 0.5, "epochs": 0.03}
    assert steps_of(Budget("epochs", 2), **prices) == 67
    assert steps_of(Budget("steps", 7), **prices) == 7
    assert steps_of(Budget("tokens", 1001), **prices) == 11
    assert steps_of(Budget("flops", 3e6), **prices) == 3
    assert steps_of(Budget("hours", 0.01), **prices) == 72


def test_masked_inputs_are_shown_where_they_are_read(text: Path, tmp_path: Path) -> None:
    setup = ready("masked_inputs", text, tmp_path / "run")
    feeds = (setup.feed, replace(setup.feed, reads_whole=True))
    row, whole = (preview(feed, setup.tokenizer, 1, 100)[0] for feed in feeds)
    assert row.targets == whole.targets
    changed = [one for one, other in zip(row.inputs, whole.inputs, strict=True) if one != other]
    assert changed and {(piece.text, piece.mark) for piece in changed} == {("[MASK]", "masked")}
