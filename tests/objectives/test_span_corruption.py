from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from foreword.data.rng import RowRng
from foreword.errors import UserError
from foreword.objectives.span_corruption import SpanCorruption
from foreword.testing.objectives import corrupt
from foreword.types import Array, Rows, Tokens

from ..contracts.cases import SEED, rows, vocab

SENTINELS = vocab().sentinels
END = vocab().id("</s>")


def pieces(packed: Rows) -> tuple[list[int], list[int]]:
    """Each document of each row: the row, and the document's number in it."""
    pieces = [
        (row, n) for row in range(len(packed)) for n in range(packed.documents[row].max() + 1)
    ]
    rows_, numbers = zip(*pieces, strict=True)
    return list(rows_), list(numbers)


def piece(tokens: Tokens | None, row: int, document: int) -> Array:
    assert tokens is not None
    return tokens.ids[row, tokens.documents[row] == document]


@pytest.mark.parametrize("end", ["</s>", ""])
@pytest.mark.parametrize("rate", [0.15, 0.5, 0.9])
@pytest.mark.parametrize("mean_span", [1.0, 3.0, 8.0])
def test_restore_inverts_corrupt(rate: float, mean_span: float, end: str) -> None:
    objective = SpanCorruption(rate, mean_span, end)
    given = rows([[60, 30, 10], [100], [2], [3, 4], [50, 50], [1, 1, 1, 1, 40], [99, 1]])
    example = corrupt(objective, given)
    assert example.source is not None
    for row, document in zip(*pieces(given), strict=True):
        text = given.ids[row, given.documents[row] == document]
        source, target = (piece(side, row, document) for side in (example.source, example.target))
        assert objective.restore(source, target, vocab()).tolist() == text.tolist()
        if end:
            assert source[-1] == target[-1] == END


@pytest.mark.parametrize("length", [2, 3, 10, 64, 141, 568])
def test_rows_of_one_length_have_equal_counts(length: int) -> None:
    objective = SpanCorruption()
    masked, spans = objective.counts(length)
    assert abs(masked - 0.15 * length) <= 1
    assert spans == max(1, round(masked / 3))
    example = corrupt(SpanCorruption(), rows([[length]] * 20))
    assert example.source is not None
    assert example.source.ids.shape == (20, length - masked + spans + 1)
    assert example.target.ids.shape == (20, masked + spans + 1)
    assert (example.weights == 1).all()


def test_568_tokens_fill_512_as_in_the_released_code() -> None:
    example = corrupt(SpanCorruption(), rows([[568]]))
    assert example.source is not None
    assert (example.source.ids.shape[1], example.target.ids.shape[1]) == (512, 114)


def test_sentinels_stand_in_order_once_on_each_side_of_a_document() -> None:
    given = rows([[200, 100], [300], [20, 280], [150, 150]])
    example = corrupt(SpanCorruption(), given)
    for row, document in zip(*pieces(given), strict=True):
        sides = [piece(side, row, document) for side in (example.source, example.target)]
        counts = []
        for ids in sides:
            sentinels = ids[np.isin(ids, SENTINELS)]
            assert sentinels.tolist() == SENTINELS[: len(sentinels)].tolist()
            assert ids[-1] == END
            counts.append(len(sentinels))
        assert counts[0] == counts[1]
        assert sides[1][0] in (SENTINELS[0], END)


def test_a_span_over_the_end_of_a_document_is_cut_there() -> None:
    objective, given = SpanCorruption(0.5, 6.0, end=""), rows([[5] * 20] * 8)
    example = corrupt(objective, given)
    source, target = example.source, example.target
    assert source is not None
    for row in range(8):
        for document in range(20):  # each can be restored from its own part alone
            read, told = (t.ids[row, t.documents[row] == document] for t in (source, target))
            text = given.ids[row, given.documents[row] == document]
            assert objective.restore(read, told, vocab()).tolist() == text.tolist()


def test_cuts_are_equally_likely() -> None:
    # 10 tokens, 4 masked in 2 spans: 6 unmasked in 2 parts (5 ways), 4 masked in 2 parts (3 ways).
    objective = SpanCorruption(0.4, 2.0)
    assert objective.counts(10) == (4, 2)
    example = corrupt(objective, rows([[10]] * 6000))
    assert example.source is not None
    patterns = Counter(map(tuple, np.isin(example.source.ids, SENTINELS).tolist()))
    spans = Counter(map(tuple, np.isin(example.target.ids, SENTINELS).tolist()))
    for counts, ways in ((patterns, 5), (spans, 3)):
        assert len(counts) == ways
        expected = 6000 / ways
        chi_square = sum((n - expected) ** 2 / expected for n in counts.values())
        assert chi_square < ways - 1 + 4 * np.sqrt(2 * (ways - 1))


def test_too_few_sentinels_are_refused() -> None:
    few = replace(vocab(), sentinels=SENTINELS[:2])
    given = rows([[300]])
    with pytest.raises(UserError, match=r"15 spans in a row of 300, .* 2 sentinels"):
        SpanCorruption().corrupt(given, RowRng(SEED, given.numbers), few)


def test_rows_of_one_token_are_refused() -> None:
    with pytest.raises(UserError, match="at least 2 tokens"):
        corrupt(SpanCorruption(), rows([[1]]))
