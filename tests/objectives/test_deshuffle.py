from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch

from foreword.objectives.deshuffle import Deshuffle
from foreword.settings import kinds
from foreword.testing.objectives import corrupt

from ..contracts.cases import CASES, Case, logits, rows, vocab

END = vocab().id("</s>")


def test_the_source_holds_the_same_tokens_of_each_document() -> None:
    given = rows([[60, 30, 10], [100], [3, 4], [1, 1, 1, 40]])
    example = corrupt(Deshuffle(), given)
    source, target = example.source, example.target
    assert source is not None
    assert np.array_equal(source.documents, target.documents)
    moved = 0
    for row in range(len(given)):
        for document in range(given.documents[row].max() + 1):
            text = given.ids[row, given.documents[row] == document].tolist()
            read, written = (t.ids[row, t.documents[row] == document] for t in (source, target))
            assert written.tolist() == [*text, END]
            assert Counter(read[:-1].tolist()) == Counter(text)
            assert read[-1] == END
            moved += int((read[:-1] != written[:-1]).sum())
    assert moved > 200


def test_orders_are_equally_likely() -> None:
    given = rows([[4]] * 4800)
    given = replace(given, ids=np.tile(np.arange(107, 111), (4800, 1)))
    source = corrupt(Deshuffle(), given).source
    assert source is not None
    counts = Counter(map(tuple, source.ids[:, :4].tolist()))
    assert len(counts) == 24
    chi_square = sum((n - 200) ** 2 / 200 for n in counts.values())
    assert chi_square < 23 + 4 * np.sqrt(46)


@pytest.mark.parametrize("case", [c for c in CASES if c.objective == "deshuffle"], ids=str)
def test_no_prediction_sees_later_targets(case: Case) -> None:
    """The source kept as it is, the last tokens of the target changed."""
    example = corrupt(Deshuffle(), rows([[20]]))
    ids = example.target.ids.copy()
    ids[0, 12:] = ids[0, 12:][::-1]
    other = replace(example, target=replace(example.target, ids=ids))
    layout, model = kinds.load("layouts", case.layout)(), case.build()
    first, second = (layout.arrange(e, vocab()).to("cpu") for e in (example, other))
    before, after = (logits(model, b)[0][b.weights[0] > 0] for b in (first, second))
    torch.testing.assert_close(before[:13], after[:13], atol=1e-5, rtol=1e-5)
    assert not torch.allclose(before[13:], after[13:], atol=1e-3)
