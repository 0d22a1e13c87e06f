from __future__ import annotations

import numpy as np
import pytest

from foreword.objectives.hybrid import Hybrid
from foreword.objectives.masked import Masked
from foreword.objectives.span_masked import SpanMasked
from foreword.testing.objectives import corrupt
from foreword.types import Array, Example, Rows

from ..contracts.cases import FIRST, SIZE, rows, vocab

MASK = vocab().id("[MASK]")


def inputs(example: Example) -> Array:
    assert example.source is not None
    return example.source.ids


@pytest.mark.parametrize("rate", [0.15, 0.3, 1.0])
def test_each_row_has_exactly_its_share(rate: float) -> None:
    given = rows([[100], [61], [40, 20], [2], [7]])
    ordinary = ((given.ids >= FIRST) & (given.documents >= 0)).sum(1)
    expected = np.clip(np.rint(rate * ordinary), 1, ordinary)
    assert corrupt(Masked(rate=rate), given).weights.sum(1).tolist() == expected.tolist()


def test_a_row_of_special_tokens_alone_has_nothing_to_predict() -> None:
    example = corrupt(Masked(), rows([[1, 1, 1], [9]]))
    assert example.weights[0].sum() == 0
    assert example.weights[1].sum() == 1


def test_four_fifths_are_masked_a_tenth_random_a_tenth_unchanged() -> None:
    given = rows([[128]] * 400)
    example = corrupt(Masked(), given)
    chosen = example.weights > 0
    shown, was = inputs(example)[chosen], given.ids[chosen]
    n = len(was)
    ordinary = SIZE - FIRST  # a random token equals the old one with probability 1 / ordinary
    is_mask, is_kept = shown == MASK, shown == was
    for group, share in (
        (is_mask, 0.8),
        (is_kept, 0.1 + 0.1 / ordinary),
        (~is_mask & ~is_kept, 0.1 - 0.1 / ordinary),
    ):
        assert abs(group.sum() - n * share) < 4 * np.sqrt(n * share * (1 - share))
    replaced = shown[~is_mask & ~is_kept]
    assert replaced.min() == FIRST
    assert replaced.max() == SIZE - 1
    assert (inputs(example)[~chosen] == given.ids[~chosen]).all()


def test_every_position_is_chosen_equally_often() -> None:
    given = rows([[41]] * 3000)
    counts = corrupt(Masked(), given).weights.sum(0)[:-1]  # the last is </s>
    expected = counts.sum() / len(counts)
    chi_square = ((counts - expected) ** 2 / expected).sum()
    assert chi_square < 39 + 4 * np.sqrt(2 * 39)


def test_whole_words_are_masked_whole() -> None:
    given = rows([[50, 50], [100], [64]] * 20)
    example = corrupt(Masked(whole_words=True), given)
    chosen, starts = example.weights > 0, vocab().starts_word[given.ids]
    is_ordinary = (given.ids >= FIRST) & (given.documents >= 0)
    joins = is_ordinary[:, 1:] & is_ordinary[:, :-1] & ~starts[:, 1:]
    joins &= given.positions[:, 1:] > 0
    assert joins.sum() > 1000
    assert (chosen[:, 1:] == chosen[:, :-1])[joins].all()
    expected = np.rint(0.15 * is_ordinary.sum(1))
    surplus = chosen.sum(1) - expected
    assert surplus.min() >= 0
    assert surplus.mean() < 2


def test_pieces_after_a_special_token_can_be_masked() -> None:
    ids = np.full((200, 6), FIRST)  # a piece that begins no word
    assert not vocab().starts_word[FIRST]
    ids[:, 2] = vocab().id("[UNK]")
    documents = np.zeros_like(ids)
    positions = np.broadcast_to(np.arange(6), ids.shape)
    given = Rows(ids, documents, positions, np.arange(200))
    chosen = corrupt(Masked(whole_words=True), given).weights.sum(0)
    assert chosen[[0, 1, 3, 4, 5]].min() > 0
    assert chosen[2] == 0


def test_another_epoch_masks_other_tokens() -> None:
    first, second = rows([[64]] * 4), rows([[64]] * 4, first_number=500)
    assert not np.array_equal(corrupt(Masked(), first).weights, corrupt(Masked(), second).weights)


@pytest.mark.parametrize("masks", [1, 3])
def test_static_masks_are_drawn_from_a_few_of_each_row(masks: int) -> None:
    one, other = rows([[60]]), rows([[30, 30]])
    many = Rows(
        np.concatenate([one.ids, other.ids] * 40),
        np.concatenate([one.documents, other.documents] * 40),
        np.concatenate([one.positions, other.positions] * 40),
        np.arange(80),
    )
    chosen = corrupt(Masked(masks=masks), many).weights
    seen = [{row.tobytes() for row in chosen[first::2]} for first in (0, 1)]
    assert [len(each) for each in seen] == [masks, masks]
    assert not seen[0] & seen[1]


@pytest.mark.parametrize("kind", [Hybrid, Masked, SpanMasked])
def test_shares_beyond_one_are_refused(kind: type[Hybrid | Masked | SpanMasked]) -> None:
    with pytest.raises(ValueError, match="mask: mask and random are shares"):
        kind(mask=0.8, random=0.3)
