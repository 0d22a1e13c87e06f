"""Character-aware tokens against a plain reference, token by token and window by window."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from foreword.nn.characters import (
    BEGIN,
    END,
    PADDING,
    SPECIAL,
    WITHIN,
    Characters,
    Spelling,
    characters_of,
)
from foreword.types import Vocab

SMALL = Spelling(width=3, filters=((1, 4), (2, 5), (4, 6)), highways=2, length=9)
WORDS = (b"[PAD]", b"cat", b"s", "\u00e9t\u00e9".encode(), b"incomprehensible", b"")


def vocab() -> Vocab:
    is_special = np.array([True, False, False, False, False, True])
    starts = np.array([True, True, False, True, True, True])
    return Vocab(len(WORDS), {"[PAD]": 0}, np.zeros(0, np.int64), is_special, starts, WORDS)


def spelt() -> Characters:
    torch.manual_seed(1)
    characters = Characters(SMALL, len(WORDS), 7)
    characters.set_spellings(vocab())
    return characters


def slowly(characters: Characters, token: int) -> Tensor:
    """Return the vector of one token by the formulas, with loops for convolutions."""
    table = [characters.character.weight[int(c)] for c in characters.table[token]]
    maxima = []
    for find in characters.filters:
        assert isinstance(find, nn.Conv1d)
        size = find.kernel_size[0]
        for weight, bias in zip(find.weight, find.bias, strict=True):  # weight (width, size)
            values = []
            for start in range(len(table) - size + 1):
                window = table[start : start + size]
                values.append(sum(x @ weight[:, n] for n, x in enumerate(window)) + bias)
            maxima.append(max(max(values), torch.tensor(0.0)))
    x = torch.stack(maxima)
    for layer in characters.highways:
        (w, gate_w), (b, gate_b) = layer.both.weight.chunk(2), layer.both.bias.chunk(2)
        gate = 1 / (1 + torch.exp(-(gate_w @ x + gate_b)))
        x = gate * torch.clamp(w @ x + b, min=0) + (1 - gate) * x
    return characters.project.weight @ x + characters.project.bias


@torch.no_grad()
def test_token_vectors_equal_the_formulas() -> None:
    characters = spelt()
    ids = torch.tensor([[1, 4, 1], [3, 0, 2]])
    vectors = characters(ids)
    assert vectors.shape == (2, 3, 7)
    for index in np.ndindex(2, 3):
        expected = slowly(characters, int(ids[index]))
        torch.testing.assert_close(vectors[index], expected, atol=1e-5, rtol=1e-5)


def test_markers_surround_the_bytes() -> None:
    table = spelt().table.tolist()
    cat = [ord(c) for c in "cat"]
    assert table[1] == [BEGIN, *cat, END, *[PADDING] * 4]
    assert table[2] == [WITHIN, ord("s"), END, *[PADDING] * 6]
    assert table[0] == [SPECIAL, *b"[PAD]", END, *[PADDING] * 2]
    assert table[4] == [BEGIN, *b"incompr", END]  # cut to what there is room for
    assert table[5] == [SPECIAL, END, *[PADDING] * 7]


def test_text_that_spells_a_special_token_differs_from_the_token() -> None:
    table = characters_of([b"[PAD]", b"[PAD]"], np.array([SPECIAL, BEGIN]), 9)
    assert not np.array_equal(table[0], table[1])


def test_without_spellings_each_token_is_spelt_by_its_number() -> None:
    table = Characters(SMALL, 120, 4).table
    assert table[107].tolist()[:5] == [BEGIN, *b"107", END]
    assert len({tuple(row) for row in table.tolist()}) == 120


def test_tokens_beyond_the_spellings_are_spelt_by_number() -> None:
    words = vocab()
    grown = Characters(SMALL, len(WORDS), 7)
    grown.set_spellings(
        Vocab(6, {}, words.sentinels, words.is_special, words.starts_word, WORDS[:5])
    )
    assert grown.table[5].tolist()[:3] == [SPECIAL, ord("5"), END]


def test_the_vector_of_a_token_does_not_depend_on_its_neighbours() -> None:
    characters = spelt()
    alone, together = characters(torch.tensor([[4]])), characters(torch.tensor([[4, 1, 3, 4]]))
    torch.testing.assert_close(alone[0, 0], together[0, 0])
    assert torch.equal(together[0, 0], together[0, 3])


def test_the_spelling_table_is_not_a_parameter() -> None:
    characters = spelt()
    assert "table" not in dict(characters.named_parameters())
    assert "table" not in characters.state_dict()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"filters": ()}, "filters: expected pairs"),
        ({"filters": ((1, 2, 3),)}, r"filters\[0\]: must be 2 values"),
        ({"filters": ((7, 8),), "length": 6}, "length: must be at least 7"),
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Spelling(**settings)


def test_highways_begin_nearly_closed() -> None:
    from foreword.nn.characters import Highway

    highway = Highway(4)
    with torch.no_grad():
        highway.both.weight.zero_()
        highway.both.bias.zero_()
        highway.close_gates()
    x = torch.randn(3, 4)
    passed = 1 - 1 / (1 + math.exp(2))
    torch.testing.assert_close(highway(x), passed * x)
