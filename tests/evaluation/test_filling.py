"""Filling of blanks by each family, and samples during training."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from foreword.data.rng import RowRng
from foreword.errors import UserError
from foreword.evaluation.filling import Candidate, fill, insert_candidates
from foreword.evaluation.samples import samples
from foreword.objectives.span_corruption import SpanCorruption
from foreword.runs.trained_model import TrainedModel
from foreword.text.tokenizer import Tokenizer
from foreword.train.step import train_step
from foreword.types import Rows
from tests.evaluation.conftest import Make

SENTENCE = "The cat sat on the mat."


def rows_of(tokenizer: Tokenizer, *texts: str) -> Rows:
    encoded = [tokenizer.encode(text) for text in texts]
    length = max(map(len, encoded))
    ids = np.stack([np.resize(ids, length) for ids in encoded])
    positions = np.broadcast_to(np.arange(length), ids.shape).copy()
    return Rows(ids, np.zeros_like(ids), positions, np.arange(len(ids)))


def train(prompted: TrainedModel, text: str, steps: int = 100) -> None:
    """Train the model on one text, each step with fresh corruption."""
    ids = prompted.tokenizer.encode(text)
    if prompted.fills_in_place:
        ids = prompted.with_bos_and_eos(ids)
    ids = np.tile(ids, (8, 1))
    positions = np.broadcast_to(np.arange(ids.shape[1]), ids.shape).copy()
    model, recipe, vocab = prompted.model.train(), prompted.recipe, prompted.vocab
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(steps):
        rows = Rows(ids, np.zeros_like(ids), positions, np.arange(8) + 8 * step)
        example = recipe.objective.corrupt(rows, RowRng(1, rows.numbers), vocab)
        train_step(
            model,
            optimizer,
            [recipe.layout.arrange(example, vocab)],
            lambda batch: recipe.objective.loss(model, batch),
            [step],
        )
    model.eval()


@pytest.mark.parametrize("family", ["encoder", "encoder_decoder"])
def test_the_text_around_blanks_stays_as_typed(make_prompted: Make, family: str) -> None:
    prompted = make_prompted(family)
    blank = "[MASK]" if prompted.fills_in_place else "<extra_id_0>"
    around = ("  . . . don 't pay £4.56\tonce-a-week (", ") for  Caf\u00e9\u0301 \u2581 {'a': 1}\n")
    filled = fill(prompted, blank.join(around))
    assert filled.text == f"«{filled.blanks[0][0].text}»".join(around)


def test_a_trained_encoder_fills_blanks_correctly(make_prompted: Make) -> None:
    prompted = make_prompted("encoder")
    train(prompted, SENTENCE)
    filled = fill(prompted, "The [MASK] sat on the [MASK].", top=3)
    assert filled.text == "The «cat» sat on the «mat»."
    assert [len(blank) for blank in filled.blanks] == [3, 3]
    for blank in filled.blanks:
        probabilities = [candidate.probability for candidate in blank]
        assert probabilities == sorted(probabilities, reverse=True) and probabilities[0] > 0.5


@pytest.mark.full
@pytest.mark.parametrize("family", ["encoder_decoder", "prefix", "span_decoder"])
def test_a_trained_span_model_fills_blanks_correctly(make_prompted: Make, family: str) -> None:
    # Rows end with a span: the last two of seven tokens are corrupted.
    objective = SpanCorruption(rate=0.3, mean_span=2)
    prompted = make_prompted(family, "t5_bias", objective=objective)
    train(prompted, SENTENCE, steps=60)
    filled = fill(prompted, "The cat sat on the [MASK]")
    assert filled.text == "The cat sat on the «mat.»"
    assert filled.blanks[0][0].probability > 0.5


def test_each_of_several_blanks_has_its_own_fillings(make_prompted: Make) -> None:
    prompted = make_prompted("encoder_decoder")
    filled = fill(prompted, "The [MASK] sat on the [MASK].", top=4)
    assert [len(blank) for blank in filled.blanks] == [4, 4]
    for blank in filled.blanks:
        assert all(candidate.ids and 0 <= candidate.probability <= 1 for candidate in blank)
        assert len({candidate.ids for candidate in blank}) == 4
        probabilities = [candidate.probability for candidate in blank]
        assert probabilities == sorted(probabilities, reverse=True)
    one = fill(prompted, "The [MASK] sat on the [MASK].", top=1)
    assert [len(blank) for blank in one.blanks] == [1, 1]
    assert "«" + one.blanks[1][0].text + "»." in one.text


@pytest.mark.parametrize("family", ["encoder", "encoder_decoder", "mixture"])
def test_sentinels_mark_blanks_like_mask(make_prompted: Make, family: str) -> None:
    prompted = make_prompted(family)
    filled = fill(prompted, "The <extra_id_0> sat on the <extra_id_1>.")
    assert filled == fill(prompted, "The [MASK] sat on the [MASK].")
    assert filled == fill(prompted, "The <extra_id_3> sat on the [MASK].")


def test_a_tokenizer_without_mask_marks_blanks_by_sentinels(
    make_prompted: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompted = make_prompted("encoder_decoder")
    expected = fill(prompted, "The [MASK] sat.")
    monkeypatch.delitem(prompted.tokenizer._special, "[MASK]")
    monkeypatch.delitem(prompted.vocab.special, "[MASK]")
    assert fill(prompted, "The <extra_id_0> sat.") == expected
    with pytest.raises(UserError, match="no <extra_id_0>; put one"):
        fill(prompted, "The cat sat.")


def test_texts_that_cannot_be_filled_are_refused(make_prompted: Make) -> None:
    with pytest.raises(UserError, match="foreword generate"):
        fill(make_prompted("decoder"), "The [MASK] sat.")
    with pytest.raises(UserError, match=r"no \[MASK\]"):
        fill(make_prompted("encoder"), "The cat sat.")
    with pytest.raises(UserError, match="64 positions"):
        fill(make_prompted("encoder"), "[MASK] " + "cat " * 64)


def test_filled_text_keeps_the_spaces_around_blanks(bpe: Tokenizer, make_prompted: Make) -> None:
    prompted = make_prompted("encoder")
    object.__setattr__(prompted, "tokenizer", bpe)
    ids = bpe.encode("The [MASK] sat, [MASK]ly, [MASK].", special=True)
    blank = (Candidate((0,), "word", 1.0),)
    assert (
        insert_candidates(prompted, ids, (blank,) * 3).text == "The «word» sat, «word»ly, «word»."
    )


@pytest.mark.product(few=2)
@pytest.mark.parametrize("family", ["encoder", "decoder", "prefix", "encoder_decoder"])
def test_samples_are_deterministic_and_keep_mode_and_random_state(
    make_prompted: Make, family: str
) -> None:
    prompted = make_prompted(family)
    rows = rows_of(prompted.tokenizer, SENTENCE, "The dog ran to the river.", "A bird sang.", "One")
    args = (prompted.model, prompted.recipe, prompted.tokenizer, rows, prompted.device)
    prompted.model.train()
    torch.manual_seed(1)
    before = torch.random.get_rng_state()
    first = samples(*args)
    assert torch.equal(before, torch.random.get_rng_state())
    assert prompted.model.training
    torch.manual_seed(2)
    assert samples(*args) == first
    assert len(first) == 3
    assert all(set(sample) == {"prompt", "text"} and sample["prompt"] for sample in first)
    if family == "encoder":
        blanks = [sample["prompt"].count("[MASK]") for sample in first]
        assert blanks == [sample["text"].count("«") for sample in first] == [3, 3, 3]
    if family == "decoder":
        prompts = ["The cat sat on", "The dog ran to", "A bird sang."]
        assert [sample["prompt"] for sample in first] == prompts
    if family in ("prefix", "encoder_decoder"):
        assert all("<extra_id_0>" in sample["prompt"] for sample in first)


def test_rows_of_padding_alone_give_no_samples(make_prompted: Make) -> None:
    prompted = make_prompted("decoder")
    ids = np.zeros((1, 8), dtype=np.int64)
    rows = Rows(ids, ids - 1, ids, np.zeros(1, dtype=np.int64))
    args = (prompted.model, prompted.recipe, prompted.tokenizer, rows, prompted.device)
    assert samples(*args) == []
