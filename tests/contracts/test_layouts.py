"""What every layout promises, for every file in `layouts/`; and what each does, by its example."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

from foreword import kinds
from foreword.data.rows import positions_within
from foreword.errors import UserError
from foreword.types import Array, Backward, Batch, Example, PredictionOrder, Queries, Tokens

from .cases import CASES, SIZE, Case, is_scored, logits, vocab

LAYOUTS = kinds.names("layouts")
every_layout = pytest.mark.parametrize("name", LAYOUTS)
POSITIONS = kinds.names("nn/positions")
IN_PLACE = ("encoder", "two_streams")
ALONE = ("bidirectional",)


def arrange(name: str, example: Example) -> Batch:
    return kinds.load("layouts", name)().arrange(example, vocab()).to("cpu")


def flat(components: list[list[int]]) -> list[int]:
    return [token for part in components for token in part]


def tokens(ids: list[list[int]]) -> Tokens:
    """One row of the documents given."""
    documents = np.repeat(np.arange(len(ids)), [len(part) for part in ids])[None]
    return Tokens(np.array([flat(ids)], dtype=np.int64), documents, positions_within(documents))


def random_ids(lengths: list[int], seed: int) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [rng.integers(107, SIZE, n).tolist() for n in lengths]


def example_for(name: str, source: list[list[int]], target: list[list[int]]) -> Example:
    """In place for some, with an order for two streams; a target alone; else source and target."""
    if name in IN_PLACE:
        weights = np.ones((1, sum(map(len, source))), np.float32)
        order = PredictionOrder(np.arange(weights.size)[None])
        parts = (order,) if name == "two_streams" else ()
        return Example(tokens(source), tokens(source), weights, is_aligned=True, parts=parts)
    weights = np.ones((1, sum(map(len, target))), np.float32)
    return Example(None if name in ALONE else tokens(source), tokens(target), weights)


def scores(case: Case, position: str, example: Example) -> tuple[torch.Tensor, Array]:
    """Logits and targets of what is scored."""
    model, batch = case.build(position), arrange(case.layout, example)
    where = is_scored(batch)
    return logits(model, batch)[where], np.asarray(batch.targets)[where]


@every_layout
def test_every_layout_has_an_objective_and_a_model(name: str) -> None:
    assert any(case.layout == name for case in CASES)


@every_layout
@pytest.mark.parametrize("position", POSITIONS)
def test_documents_of_a_row_do_not_see_each_other(name: str, position: str) -> None:
    case = next(c for c in CASES if c.layout == name)
    source, target = random_ids([9, 4, 15], 1), random_ids([3, 5, 2], 2)
    packed, wanted = scores(case, position, example_for(name, source, target))
    start = 0
    for read, write in zip(source, target, strict=True):
        found, targets = scores(case, position, example_for(name, [read], [write]))
        part = slice(start, start + len(targets))
        assert np.array_equal(targets, wanted[part])
        torch.testing.assert_close(packed[part], found, atol=1e-5, rtol=1e-5)
        start += len(targets)
    assert start == len(wanted)


@every_layout
def test_every_target_is_scored_once(name: str) -> None:
    source, target = random_ids([9, 4, 15], 3), random_ids([3, 5, 2], 4)
    batch = arrange(name, example_for(name, source, target))
    found = np.asarray(batch.targets)[is_scored(batch)]
    if name in ALONE:  # nothing stands before a text's first token; backward, behind its last
        backward = batch.require(Backward)
        before = np.asarray(backward.targets)[np.asarray(backward.weights) > 0]
        assert before.tolist() == flat([text[:-1] for text in target])
        target = [text[1:] for text in target]
    assert found.tolist() == flat(source if name in IN_PLACE else target)


@every_layout
def test_shapes_agree(name: str) -> None:
    batch = arrange(name, example_for(name, random_ids([6, 5], 5), random_ids([4, 3], 6)))
    shape = batch.ids.shape
    assert batch.positions.shape == batch.targets.shape == batch.weights.shape == shape
    assert batch.mask.dense(1, shape[1], shape[1], torch.device("cpu")).any(-1).all()
    assert (batch.source is None) == (batch.cross_mask is None)


@every_layout
def test_an_objective_that_does_not_fit_is_refused(name: str) -> None:
    one = tokens(random_ids([8], 7))
    weights = np.ones((1, 8), np.float32)
    refused = {
        "encoder": [Example(None, one, weights), Example(one, one, weights)],
        "decoder": [Example(one, one, weights, is_aligned=True)],
        "bidirectional": [Example(one, one, weights), example_for("encoder", [[7]], [])],
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
    batch = arrange("prefix", example_for("prefix", [[7, 8], [9]], [[4, 5], [6]]))
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


def cells(text: str) -> list[list[int]]:
    """`7 3 | 4` -> [[7, 3], [4]]; what is not scored is -1."""
    components = [part.split() for part in text.split("|")]
    return [[-1 if cell == "." else int(cell) for cell in part] for part in components]


@every_layout
def test_the_docstring_example_is_exact(name: str) -> None:
    text = kinds.load("layouts", name).__doc__
    given = {key: cells(inside) for key, inside in re.findall(r"(\w+) +\[(.*?)\]", text)}
    given.setdefault("source", given.get("ids", []))
    if name == "encoder":
        shown, wanted = tokens(given["source"]), tokens(given["targets"])
        weights = (wanted.ids >= 0).astype(np.float32)
        example = Example(shown, wanted, weights, is_aligned=True)
    elif name == "two_streams":
        shown, order = tokens(given["source"]), tokens(given["order"]).ids
        weights = (order >= 0).astype(np.float32)
        example = Example(shown, shown, weights, is_aligned=True, parts=(PredictionOrder(order),))
    else:
        example = example_for(name, given["source"], given["target"])
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
