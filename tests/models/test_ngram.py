"""The n-gram model: its loss, its scores, its files and its refusals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from foreword.errors import UserError
from foreword.interop.word_table import input_vectors
from foreword.models.ngram import NGram, NgramBackbone, NgramHead
from foreword.nn.masks import CausalMask as Mask
from foreword.nn.model import Model
from foreword.objectives.causal import Causal
from foreword.settings import kinds
from foreword.types import Array, Batch, Vocab
from tests.ngrams.texts import START, VOCAB, documents, stream
from tests.readings import reading


def fitted(folder: Path, order: int = 3) -> NgramBackbone:
    backbone = NGram(order=order).build(VOCAB)
    assert isinstance(backbone, NgramBackbone)
    backbone.fit(reading(documents(stream()), vocab(), folder))
    return backbone


def vocab(size: int = VOCAB) -> Vocab:
    is_word = np.arange(size) != START
    return Vocab(size, {"<s>": START}, np.empty(0), ~is_word, is_word)


def batch(ids: Array, positions: Array | None = None) -> Batch:
    """Return a batch in which each position predicts the next token."""
    columns = np.tile(np.arange(ids.shape[1]), (len(ids), 1)) if positions is None else positions
    weights = np.ones(ids.shape, np.float32)
    weights[:, -1] = 0
    weights[:, :-1] *= columns[:, 1:] > 0
    return Batch(ids, columns, Mask(), np.roll(ids, -1, axis=1), weights).to("cpu")


def rows() -> Array:
    """Return texts in rows of 12, cut at any token."""
    words = stream(20, seed=2)
    return words[: len(words) // 12 * 12].reshape(-1, 12)


def starts(ids: Array) -> Array:
    """Return the positions within texts, for rows that hold several."""
    columns = np.tile(np.arange(ids.shape[1]), (len(ids), 1))
    return columns - np.maximum.accumulate(np.where(ids == START, columns, 0), axis=1)


@pytest.mark.parametrize("order", [1, 2, 4])
def test_the_loss_is_the_sum_of_the_tables_log_probabilities(tmp_path: Path, order: int) -> None:
    backbone = fitted(tmp_path, order)
    model = Model(backbone, Causal().heads(backbone, vocab()))
    ids = rows()
    inputs = batch(ids, starts(ids))
    loss = Causal().loss(model, inputs)
    is_first = (np.arange(ids.size) % 12 == 0) | (ids.ravel() == START)
    known = backbone.table.log_probs_of(ids.ravel(), is_first=is_first)
    assert loss.total.item() == pytest.approx(-known.sum())
    assert loss.count.item() == (~is_first).sum()


@pytest.mark.parametrize("order", [1, 2, 4])
def test_scores_of_all_words_contain_those_of_the_targets(tmp_path: Path, order: int) -> None:
    backbone = fitted(tmp_path, order)
    head = backbone.build_token_head()
    assert isinstance(head, NgramHead)
    inputs = batch(rows())
    states = backbone(inputs).states
    scores = head(states)
    assert torch.allclose(scores.exp().sum(-1), torch.ones(states.shape[:2]), atol=1e-5)
    expected = scores.gather(-1, inputs.targets[..., None]).flatten()
    actual = head.log_probs(states.flatten(0, 1), inputs.targets.flatten())
    torch.testing.assert_close(actual.float(), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("order", [1, 2, 4])
def test_cached_decoding_equals_one_pass(tmp_path: Path, order: int) -> None:
    backbone, of = fitted(tmp_path, order), batch(rows())
    expected, memory = backbone(of).states, None
    for n in range(of.ids.shape[1]):
        one = Batch(of.ids[:, n : n + 1], of.positions[:, n : n + 1], Mask())
        hidden = backbone(one, memory)
        memory = hidden.cache
        assert torch.equal(hidden.states[:, 0], expected[:, n])


def test_fit_reports_numbers_of_ngrams(tmp_path: Path) -> None:
    backbone = fitted(tmp_path, 2)
    model = Model(backbone, Causal().heads(backbone, vocab()))
    pairs = backbone.table.header.sizes[1]
    assert model.count_parameters() == 2 * VOCAB + pairs  # a back-off for each word
    assert not list(model.parameters())


def test_saved_tables_load_unchanged(tmp_path: Path) -> None:
    for name in ("counts", "saved"):
        (tmp_path / name).mkdir()
    backbone = fitted(tmp_path / "counts")
    backbone.save(tmp_path / "saved")
    other = NGram(order=3).build(VOCAB)
    other.load(tmp_path / "saved")
    inputs = batch(rows())
    assert torch.equal(other(inputs).states, backbone(inputs).states)
    with pytest.raises(UserError, match=r"up to 3 of 14 tokens, and the recipe says 4"):
        NGram(order=4).build(VOCAB).load(tmp_path / "saved")


def test_an_order_beyond_all_texts_is_refused(tmp_path: Path) -> None:
    backbone = NGram(order=7).build(5)
    assert isinstance(backbone, NgramBackbone)
    texts = [np.array([2, 3, 1]), np.array([2, 1])]
    with pytest.raises(UserError, match=r"model\.order: 7 words, but no text has more than 4"):
        backbone.fit(reading(texts, vocab(5), tmp_path))


def test_other_heads_are_refused_for_lack_of_states() -> None:
    backbone = NGram().build(200)
    with pytest.raises(UserError, match="no gradients"):
        kinds.load("objectives", "masked")().heads(backbone, vocab())
    with pytest.raises(UserError, match="no word vectors; use word2vec"):
        input_vectors(Model(backbone, nn.ModuleDict()), 200)


def test_without_smoothing_an_unseen_context_is_refused(tmp_path: Path) -> None:
    smoothing = kinds.load("ngrams/smoothing", "maximum_likelihood")()
    backbone = NGram(order=3, smoothing=smoothing).build(VOCAB + 1)
    assert isinstance(backbone, NgramBackbone)
    backbone.fit(reading(documents(stream()), vocab(VOCAB + 1), tmp_path))
    head = backbone.build_token_head()
    never = batch(np.array([[START, VOCAB, VOCAB]]))
    with pytest.raises(UserError, match="unseen contexts have probability 0"):
        head(backbone(never).states[:, -1])
