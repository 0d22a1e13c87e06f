"""The contract of layouts, as functions.

A layout accepts one or more of five forms of examples, and refuses the others in one line: targets
`in_place`, the same in an `order` of prediction, the same in `rows` that are causal or not, a
`target` alone, and a `source` with a target.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import nn

from foreword.data.rows import positions_within
from foreword.errors import UserError
from foreword.layouts._contract import Layout
from foreword.nn.init import initialise
from foreword.nn.model import Model
from foreword.settings import kinds
from foreword.testing.cases import FIRST, SEED, SIZE, is_scored, logits, tiny, vocab
from foreword.train.feed import count_tokens
from foreword.types import (
    Array,
    Backward,
    Batch,
    CausalRows,
    Example,
    PredictionOrder,
    Queries,
    Tokens,
)

IN_PLACE = ("in_place", "order", "rows")
FORMS = (*IN_PLACE, "target", "source")
PADDING = 4  # tokens at the end of a row
SOURCES, TARGETS = [9, 4, 15], [3, 5, 2]  # tokens of each document of a row


def check_layout(layout: Layout) -> None:
    """Check all that a layout promises.

    Raises:
        AssertionError: a promise is broken.
    """
    for check in LAYOUT_CHECKS:
        check(layout)


def tokens(documents: Sequence[Sequence[int]]) -> Tokens:
    """Return one row of documents, each a list of ids."""
    numbers = np.repeat(np.arange(len(documents)), [len(document) for document in documents])[None]
    ids = np.array([[i for document in documents for i in document]], dtype=np.int64)
    return Tokens(ids, numbers, positions_within(numbers))


def example_of(form: str, source: Sequence[list[int]], target: Sequence[list[int]]) -> Example:
    """Return an example that predicts every token of the target, or of the source in place.

    Args:
        form: one of `FORMS`.
        source: ids of each document.
        target: ids of each document.
    """
    if form in IN_PLACE:
        row = tokens(source)
        order = PredictionOrder(np.arange(row.ids.size)[None])
        parts = {"order": (order,), "rows": (CausalRows(np.array([False])),)}.get(form, ())
        weights = np.ones(row.ids.shape, np.float32)
        return Example(row, row, weights, is_aligned=True, parts=parts)
    row = tokens(target)
    weights = np.ones(row.ids.shape, np.float32)
    return Example(tokens(source) if form == "source" else None, row, weights)


def accepted_forms(layout: Layout) -> list[str]:
    """Return the forms of examples that a layout accepts.

    Raises:
        AssertionError: it accepts none, or refuses one otherwise than by a UserError that names
            the setting.
    """
    accepted = []
    for form in FORMS:
        try:
            layout.arrange(example_of(form, *_documents()), vocab())
        except UserError as error:
            assert str(error).startswith("layout.kind: "), f"a refusal names no setting: {error}"
        else:
            accepted.append(form)
    assert accepted, "the layout accepts no form of example"
    return accepted


def _documents() -> tuple[list[list[int]], list[list[int]]]:
    """Return ids of three sources and of their targets."""
    rng = np.random.default_rng(1)
    source, target = (
        [rng.integers(FIRST, SIZE, length).tolist() for length in lengths]
        for lengths in (SOURCES, TARGETS)
    )
    return source, target


def _arranged(layout: Layout, form: str) -> Batch:
    return layout.arrange(example_of(form, *_documents()), vocab()).to("cpu")


def _model(layout: Layout, position: str) -> Model:
    """Return a tiny model that goes with the layout, with a head that predicts tokens."""
    for name in kinds.names("models"):
        settings = tiny(name, position)
        if settings.trains_offline or settings.has_memory:
            continue
        if not settings.reads_ahead and not layout.is_causal:
            continue
        if settings.reads_source != layout.has_source:
            continue
        if settings.predicts_both_directions != layout.predicts_both_directions:
            continue
        if layout.is_two_streams:
            if name != "transformer":
                continue
            settings = replace(settings, two_streams=True)
        backbone = settings.build(SIZE)
        model = Model(backbone, nn.ModuleDict({"token": backbone.build_token_head()}))
        initialise(model, SEED)
        return model.eval()
    raise AssertionError("no model goes with the layout")


def check_refusals_name_the_setting(layout: Layout) -> None:
    """Check that a form of example that does not fit is refused in one line."""
    accepted_forms(layout)


def check_shapes_agree(layout: Layout) -> None:
    """Check the shapes of a batch, and that each position attends to something."""
    for form in accepted_forms(layout):
        batch = _arranged(layout, form)
        shape = batch.ids.shape
        assert batch.positions.shape == shape, "positions are not of the ids' shape"
        assert batch.targets.shape == batch.weights.shape, "targets and weights differ in shape"
        assert batch.part(Queries) is not None or batch.targets.shape == shape
        allowed = batch.mask.dense(1, shape[1], shape[1], torch.device("cpu"))
        assert allowed.any(-1).all(), "a position attends to nothing"
        assert (batch.source is None) == (batch.cross_mask is None)
        assert (batch.source is None) != layout.has_source, "has_source is not what it does"


def check_every_target_is_scored_once(layout: Layout) -> None:
    """Check that each token with a context is predicted once."""
    for form in accepted_forms(layout):
        source, target = _documents()
        batch = _arranged(layout, form)
        targets = np.asarray(batch.targets)[is_scored(batch)].tolist()
        if form == "rows":  # predicted at the token before
            source = [document[1:] for document in source]
        if form == "target":  # a text's first token has no context; backward, its last
            if layout.predicts_both_directions:
                backward = batch.require(Backward)
                before = np.asarray(backward.targets)[np.asarray(backward.weights) > 0]
                assert before.tolist() == [i for document in target for i in document[:-1]]
            target = [document[1:] for document in target]
        expected = source if form in IN_PLACE else target
        assert targets == [i for document in expected for i in document], f"targets of form {form}"


@torch.no_grad()
def check_documents_do_not_see_each_other(layout: Layout, position: str = "rotary") -> None:
    """Check that a document of a row has the predictions that it has alone.

    Args:
        layout: the layout.
        position: kind of position scheme of the model that reads the rows.
    """
    for form in accepted_forms(layout):
        model = _model(layout, position)

        def predictions(
            source: list[list[int]],
            target: list[list[int]],
            model: Model = model,
            form: str = form,
        ) -> tuple[torch.Tensor, Array]:
            batch = layout.arrange(example_of(form, source, target), vocab()).to("cpu")
            where = is_scored(batch)
            return logits(model, batch)[where], np.asarray(batch.targets)[where]

        source, target = _documents()
        packed, targets = predictions(source, target)
        start = 0
        for source_ids, target_ids in zip(source, target, strict=True):
            alone, expected = predictions([source_ids], [target_ids])
            part = slice(start, start + len(expected))
            assert np.array_equal(expected, targets[part])
            torch.testing.assert_close(packed[part], alone, atol=1e-5, rtol=1e-5)
            start += len(expected)
        assert start == len(targets), "a row has other targets than its documents"


def check_padding_is_not_counted(layout: Layout) -> None:
    """Check that a token budget counts the same tokens with padding and without."""
    for form in accepted_forms(layout):
        example = example_of(form, *_documents())
        source = None if example.source is None else _padded(example.source)
        target = source if example.is_aligned and source is not None else _padded(example.target)
        weights = np.pad(example.weights, ((0, 0), (0, PADDING)))
        parts = tuple(
            PredictionOrder(np.pad(part.order, ((0, 0), (0, PADDING))))
            if isinstance(part, PredictionOrder)
            else part
            for part in example.parts
        )
        padded = Example(source, target, weights, example.is_aligned, parts)
        counts = [count_tokens(layout.arrange(each, vocab())) for each in (example, padded)]
        assert counts[0] == counts[1], f"padding is counted in form {form}: {counts}"


def _padded(row: Tokens) -> Tokens:
    ids = np.pad(row.ids, ((0, 0), (0, PADDING)))
    documents = np.pad(row.documents, ((0, 0), (0, PADDING)), constant_values=-1)
    return Tokens(ids, documents, positions_within(documents))


LAYOUT_CHECKS: tuple[Callable[[Layout], None], ...] = (
    check_refusals_name_the_setting,
    check_shapes_agree,
    check_every_target_is_scored_once,
    check_documents_do_not_see_each_other,
    check_padding_is_not_counted,
)
