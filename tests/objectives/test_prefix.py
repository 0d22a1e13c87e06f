from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from foreword.objectives.prefix import Prefix
from foreword.testing.objectives import corrupt
from foreword.types import Tokens

from ..contracts.cases import rows, vocab

END = vocab().id("</s>")


def piece(tokens: Tokens | None, row: int, document: int) -> list[int]:
    assert tokens is not None
    ids: list[int] = tokens.ids[row, tokens.documents[row] == document].tolist()
    return ids


@pytest.mark.parametrize("rate", [0.0, 0.25, 0.9])
@pytest.mark.parametrize("end", [(), (END,)])
def test_source_and_target_are_the_text(rate: float, end: tuple[int, ...]) -> None:
    given = rows([[60, 30, 10], [100], [3, 4], [1, 1, 1, 40], [2, 2]])
    example = corrupt(Prefix(rate, "</s>" if end else ""), given)
    for row in range(len(given)):
        for document in range(given.documents[row].max() + 1):
            text = given.ids[row, given.documents[row] == document].tolist()
            source, target = (piece(t, row, document) for t in (example.source, example.target))
            read, written = source[: len(source) - len(end)], target[: len(target) - len(end)]
            assert [*read, *end, *written, *end] == [*source, *target]
            assert read + written == text
            assert written
            assert bool(read) == (len(text) > 1)


def test_splits_are_equally_likely() -> None:
    example = corrupt(Prefix(end=""), rows([[6]] * 5000))
    assert example.source is not None
    counts = Counter((example.source.documents >= 0).sum(1).tolist())
    assert sorted(counts) == [1, 2, 3, 4, 5]
    chi_square = sum((n - 1000) ** 2 / 1000 for n in counts.values())
    assert chi_square < 4 + 4 * np.sqrt(8)


def test_a_rate_gives_all_rows_the_same_widths() -> None:
    example = corrupt(Prefix(0.25), rows([[200]] * 8))
    assert example.source is not None
    assert (example.source.ids.shape[1], example.target.ids.shape[1]) == (151, 51)
    assert (example.weights == 1).all()
