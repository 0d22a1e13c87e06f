"""What every layout promises, for every file in `layouts/`; and what each does, by its example."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from foreword.errors import UserError
from foreword.layouts._contract import Layout
from foreword.layouts.encoder_decoder import EncoderDecoder
from foreword.settings import kinds
from foreword.testing.layouts import (
    LAYOUT_CHECKS,
    check_documents_do_not_see_each_other,
    example_of,
    tokens,
)
from foreword.types import (
    Backward,
    Batch,
    CausalRows,
    Example,
    MaxLengths,
    PredictionOrder,
    Queries,
)

from .cases import CASES, is_scored, vocab

LAYOUTS = kinds.names("layouts")
every_layout = pytest.mark.parametrize("name", LAYOUTS)
POSITIONS = kinds.names("nn/positions")


def arrange(name: str, example: Example) -> Batch:
    return kinds.load("layouts", name)().arrange(example, vocab()).to("cpu")


def flat(components: list[list[int]]) -> list[int]:
    return [token for part in components for token in part]


@every_layout
@pytest.mark.parametrize("check", LAYOUT_CHECKS, ids=lambda check: check.__name__)
def test_every_layout_keeps_the_contract(check: Callable[[Layout], None], name: str) -> None:
    check(kinds.load("layouts", name)())


@pytest.mark.product
@every_layout
@pytest.mark.parametrize("position", POSITIONS)
def test_documents_of_a_row_do_not_see_each_other(name: str, position: str) -> None:
    check_documents_do_not_see_each_other(kinds.load("layouts", name)(), position)


@every_layout
def test_every_layout_has_an_objective_and_a_model(name: str) -> None:
    assert any(case.layout == name for case in CASES)


@every_layout
def test_an_objective_that_does_not_fit_is_refused(name: str) -> None:
    one = tokens([list(range(107, 115))])
    weights = np.ones((1, 8), np.float32)
    refused = {
        "encoder": [Example(None, one, weights), Example(one, one, weights)],
        "decoder": [Example(one, one, weights, is_aligned=True)],
        "hybrid": [Example(one, one, weights), example_of("in_place", [[7]], [])],
        "bidirectional": [Example(one, one, weights), example_of("in_place", [[7]], [])],
    }
    causal = Example(None, one, weights)
    for example in refused.get(name, [causal, Example(one, one, weights, is_aligned=True)]):
        with pytest.raises(UserError, match=r"layout\.kind: "):
            arrange(name, example)


def test_a_causal_row_predicts_the_next_tokens() -> None:
    target = tokens([[7, 8, 9], [4, 5]])
    batch = arrange("decoder", Example(None, target, np.ones((1, 5), np.float32)))
    assert batch.ids.tolist() == [[7, 8, 9, 4, 5]]
    assert np.where(is_scored(batch), batch.targets, -1).tolist() == [[8, 9, -1, 5, -1]]
    assert batch.positions.tolist() == [[0, 1, 2, 0, 1]]


def test_a_prefix_is_bidirectional_and_its_target_causal() -> None:
    batch = arrange("prefix", example_of("source", [[7, 8], [9]], [[4, 5], [6]]))
    assert batch.ids.tolist() == [[7, 8, 4, 5, 9, 6]]
    dense = batch.mask.dense(1, 6, 6, torch.device("cpu"))[0, 0].int()
    assert dense.tolist() == [
        [1, 1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0],
        [1, 1, 1, 0, 0, 0],
        [1, 1, 1, 1, 0, 0],
        [0, 0, 0, 0, 1, 0],
        [0, 0, 0, 0, 1, 1],
    ]


def test_positions_in_the_source_go_on_past_its_end_within_the_greatest_length() -> None:
    layout, table = EncoderDecoder(positions="source"), vocab()
    source, target = [[107, 108, table.sentinels[0]]], [[table.sentinels[0], 109, 110, 111, 112]]
    batch = layout.arrange(example_of("source", source, target), table)
    assert max(3, 5) <= batch.positions.max() < layout.max_length(MaxLengths(3, 5, 8))


def test_positions_in_the_source_begin_at_each_sentinel() -> None:
    layout, table = EncoderDecoder(positions="source"), vocab()
    first, second = table.sentinels[:2].tolist()
    source = [[107, first, 108, 109, second, 110], [111, first]]
    target = [[first, 112, 113, second, 114, 115, 116], [first, 117, second, 118]]
    batch = layout.arrange(example_of("source", source, target), table)
    # The decoder reads a start token, then the target but its last token. The second document has
    # no second sentinel in its source, so there positions go on.
    assert batch.positions.tolist() == [[0, 1, 2, 3, 4, 5, 6, 6, 7, 8, 9]]
    one = layout.arrange(example_of("source", source[:1], target[:1]), table)
    after = layout.next_positions(
        one.ids[:, 1:], one.positions[:, 0], np.asarray(source[:1]), table
    )
    assert after.tolist() == one.positions[:, 1:].tolist()


def cells(text: str) -> list[list[int]]:
    """`7 3 | 4` -> [[7, 3], [4]]; what is not scored is -1."""
    components = [part.split() for part in text.split("|")]
    return [[-1 if cell == "." else int(cell) for cell in part] for part in components]


@every_layout
def test_the_docstring_example_is_exact(name: str) -> None:
    text = kinds.load("layouts", name).__doc__
    given = {key: cells(inside) for key, inside in re.findall(r"(\w+) +\[(.*?)\]", text)}
    given.setdefault("source", given.get("ids", []))
    if name == "hybrid":
        shown, expected = tokens(given["source"]), tokens(given["target"])
        ids = np.where(expected.ids >= 0, expected.ids, shown.ids)
        weights = (expected.ids >= 0).astype(np.float32)
        rows = CausalRows(np.array([False]))
        target = replace(shown, ids=ids)
        example = Example(shown, target, weights, is_aligned=True, parts=(rows,))
    elif name == "encoder":
        shown, expected = tokens(given["source"]), tokens(given["targets"])
        weights = (expected.ids >= 0).astype(np.float32)
        example = Example(shown, expected, weights, is_aligned=True)
    elif name == "two_streams":
        shown, order = tokens(given["source"]), tokens(given["order"]).ids
        weights = (order >= 0).astype(np.float32)
        example = Example(shown, shown, weights, is_aligned=True, parts=(PredictionOrder(order),))
    else:
        form = "target" if name == "bidirectional" else "source"
        example = example_of(form, given["source"], given["target"])
    batch = arrange(name, example)
    read = batch.ids if batch.source is None else batch.source.ids
    backward = batch.part(Backward)
    if backward is not None:
        previous = np.where(backward.weights > 0, backward.targets, -1)
        assert previous[0].tolist() == flat(given["backward"])
    assert np.where(is_scored(batch), batch.targets, -1)[0].tolist() == flat(given["targets"])
    assert batch.ids[0].tolist() == flat(given.get("ids", given["source"]))
    assert read[0, : len(flat(given["source"]))].tolist() == flat(given["source"])


def test_content_and_query_streams_have_their_masks() -> None:
    source, order = tokens([[7, 3, 9], [4, 6]]), np.array([[-1, 1, 0, -1, 0]])
    weights = (order >= 0).astype(np.float32)
    example = Example(source, source, weights, is_aligned=True, parts=(PredictionOrder(order),))
    batch, cpu = arrange("two_streams", example), torch.device("cpu")
    queries = batch.require(Queries)
    assert queries.at.tolist() == [[1, 2, 4]]
    read = [[1, 0, 0, 0, 0], [1, 1, 1, 0, 0], [1, 0, 1, 0, 0], [0, 0, 0, 1, 0], [0, 0, 0, 1, 1]]
    assert batch.mask.dense(1, 5, 5, cpu)[0, 0].int().tolist() == read
    predicted = queries.mask.dense(1, 5, 5, cpu)[0, 0, [1, 2, 4]].int()
    assert predicted.tolist() == [[1, 0, 1, 0, 0], [1, 0, 0, 0, 0], [0, 0, 0, 1, 0]]
