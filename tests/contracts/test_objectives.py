"""What every objective promises, for every file in `objectives/`."""

from __future__ import annotations

import json
import math
import re
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
import torch

from foreword import config, kinds
from foreword.data.rng import RowRng
from foreword.objectives._contract import mode_id
from foreword.objectives._pair import PairObjective
from foreword.runs.dry_run import dummy_example, dummy_vocab
from foreword.runs.recipe import load_recipe
from foreword.train.feed import counted
from foreword.types import Array, Batch, Example, Loss, Rows, Tokens, Vocab

from .cases import CASES, FIRST, SEED, SIZE, TRAINED, Case, is_scored, logits, rows, take, vocab

OBJECTIVES = kinds.names("objectives")
MIXED = [[20, 9, 3], [32], [25], [1, 30], [16, 16], [2, 2, 2]]
PAIRS = [n for n in OBJECTIVES if issubclass(kinds.load("objectives", n), PairObjective)]
# What they predict stands where they read; the others' targets are texts of their own.
IN_PLACE = {"masked", "permutation", "replaced_token", "span_masked", "sum", *PAIRS}
# Deshuffled, the source is all tokens of the target and only their order is hidden; of pairs no
# token is predicted.
UNHIDDEN = ["deshuffle", *PAIRS]
every_objective = pytest.mark.parametrize("name", OBJECTIVES)
every_case = pytest.mark.parametrize("case", CASES, ids=str)
every_trained_case = pytest.mark.parametrize("case", TRAINED, ids=str)


def corrupt(name: str, of: Rows, **settings: Any) -> Example:
    return kinds.load("objectives", name)(**settings).corrupt(of, RowRng(SEED, of.numbers), vocab())


def sides(example: Example) -> list[Tokens]:
    return [side for side in (example.source, example.target) if side is not None]


def whole(tokens: Tokens, row: int) -> Array:
    """Ids, documents and positions of one row without its padding, (3, length)."""
    inside = tokens.documents[row] >= 0
    return np.stack([tokens.ids, tokens.documents, tokens.positions])[:, row, inside]


@every_objective
def test_every_objective_has_a_layout_and_a_model(name: str) -> None:
    assert any(case.objective == name for case in CASES)


@every_objective
def test_same_rows_and_seed_same_example(name: str) -> None:
    first, again = corrupt(name, rows(MIXED)), corrupt(name, rows(MIXED))
    for one, other in zip(sides(first), sides(again), strict=True):
        assert np.array_equal(one.ids, other.ids)
    assert np.array_equal(first.weights, again.weights)


@every_objective
def test_a_row_alone_is_the_row_in_a_group(name: str) -> None:
    many = rows(MIXED)
    together = corrupt(name, many)
    for row in range(len(many)):
        alone = corrupt(name, take(many, [row]))
        for one, other in zip(sides(alone), sides(together), strict=True):
            assert np.array_equal(whole(one, 0), whole(other, row))
        assert alone.weights.sum() == together.weights[row].sum()
        if alone.labels is not None and together.labels is not None:
            assert np.array_equal(alone.labels[0], together.labels[row, : alone.labels.shape[1]])


@every_objective
def test_corrupt_does_not_change_the_rows(name: str) -> None:
    given, kept = rows(MIXED), rows(MIXED)
    corrupt(name, given)
    for field in ("ids", "documents", "positions", "numbers", "segments", "labels"):
        assert np.array_equal(getattr(given, field), getattr(kept, field))


@every_objective
def test_ids_are_in_range_and_padding_is_not_scored(name: str) -> None:
    example = corrupt(name, rows(MIXED))
    for side in sides(example):
        assert side.ids.dtype == side.documents.dtype == side.positions.dtype == np.int64
        assert side.ids.min() >= 0
        assert side.ids.max() < SIZE
        assert side.positions.min() >= 0
    assert example.weights.dtype == np.float32
    assert example.weights.shape == example.target.ids.shape
    assert (example.weights[example.target.documents < 0] == 0).all()
    if example.labels is not None:
        assert (example.labels[example.target.documents < 0] == -1).all()
    if name in PAIRS:  # these predict no tokens
        assert example.labels is not None
        assert (example.labels >= 0).any()
        assert example.weights.sum() == 0
    else:
        assert example.weights.sum() > 0


@every_objective
def test_special_tokens_are_never_corrupted_in_place(name: str) -> None:
    given = rows([[5] * 40] * 4)
    example = corrupt(name, given)
    is_in_place = example.is_aligned and example.source is not None
    assert is_in_place == (name in IN_PLACE)
    if not is_in_place:
        return
    assert example.source is not None
    stands = example.target.ids
    if name == "sentence_order":  # what it swaps takes its special token with it
        assert np.array_equal(np.sort(stands), np.sort(given.ids))
    else:
        assert np.array_equal(stands, given.ids)
    is_special = stands < FIRST
    assert is_special.any()
    assert np.array_equal(example.source.ids[is_special], stands[is_special])
    assert (example.weights[is_special] == 0).all()


def mask_all(name: str) -> dict[str, Any]:
    """Settings under which what is predicted is never shown, where the objective can show it."""
    cls = kinds.load("objectives", name)
    known = {field.name for field in fields(cls)}
    if "terms" in known:
        return {"terms": tuple(replace(t, **mask_all(kinds.name_of(t))) for t in cls().terms)}
    return {key: value for key, value in (("mask", 1.0), ("random", 0.0)) if key in known}


def ranks_in_order(case: Case, of: Rows, batch: Batch) -> Array:
    """Return each query-stream prediction's rank in the order; (batch, predictions)."""
    order = corrupt(case.objective, of).order
    assert order is not None
    assert batch.queries is not None
    return np.take_along_axis(order, np.asarray(batch.queries.at), axis=1)


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.objective not in UNHIDDEN], ids=str
)
def test_no_prediction_sees_its_target(case: Case) -> None:
    given = rows([[20, 20], [40]])
    model, settings = case.build(), mask_all(case.objective)
    batch = case.batch(given, **settings)
    before = logits(model, batch)
    seen = 0
    for row, column in np.ndindex(given.ids.shape):
        if given.ids[row, column] < FIRST:
            continue
        ids = given.ids.copy()
        ids[row, column] = FIRST + (ids[row, column] - FIRST + 2) % (SIZE - FIRST)
        changed = case.batch(replace(given, ids=ids), **settings)
        moved = np.flatnonzero(
            np.asarray(changed.targets != batch.targets)[row] & is_scored(batch)[row]
        )
        if not len(moved):
            continue
        seen += 1
        after = logits(model, changed)
        # In place: at the target. In a text of its own: there and at all that comes before; with
        # an order of prediction: at all that is not later in it.
        is_aligned = case.layout == "encoder"
        blind = moved if is_aligned else np.arange(moved[0] + 1)
        if batch.queries is not None:
            order = ranks_in_order(case, given, batch)[row]
            blind = np.flatnonzero(order <= order[moved[0]])
        blind = blind[is_scored(batch)[row, blind]]
        torch.testing.assert_close(after[row, blind], before[row, blind], atol=1e-5, rtol=1e-5)
    assert seen > 1


@every_case
def test_predictions_depend_on_visible_tokens(case: Case) -> None:
    given = rows([[24], [24]])
    other = replace(given, ids=rows([[24], [24]], seed=2).ids)
    model = case.build()
    one, two = case.batch(given), case.batch(other)
    difference = (logits(model, one) - logits(model, two)).abs()[is_scored(one)]
    assert difference.max() > 0.01


@every_case
def test_documents_of_a_row_do_not_see_each_other(case: Case) -> None:
    given = rows([[30, 30], [40, 20], [45, 15]])
    half = FIRST + (SIZE - FIRST) // 2
    in_second = given.documents == 1
    ordinary = given.ids >= FIRST
    low = FIRST + (given.ids - FIRST) % (half - FIRST)
    ids = np.where(ordinary, np.where(in_second, low + half - FIRST, low), given.ids)
    # Where words begin stays as it is: whole words are chosen by it, over the whole row.
    further = 2 * np.random.default_rng(3).integers(0, (SIZE - half) // 2, ids.shape)
    fresh = half + (ids - half + further) % (SIZE - half)
    changed = np.where(ordinary & in_second, fresh, ids)
    model, settings = case.build("rotary"), mask_all(case.objective)
    one = case.batch(replace(given, ids=ids), **settings)
    two = case.batch(replace(given, ids=changed), **settings)
    targets = np.asarray(one.targets)
    is_first = is_scored(one) & (targets >= FIRST) & (targets < half)
    assert is_first.any()
    torch.testing.assert_close(
        logits(model, one)[is_first], logits(model, two)[is_first], atol=1e-5, rtol=1e-5
    )


def gradient(case: Case, groups: list[Rows]) -> tuple[float, list[torch.Tensor]]:
    """The mean loss over all groups and its gradient, sums and counts added up before dividing."""
    model = case.build()
    objective = kinds.load("objectives", case.objective)()
    batches = counted(objective, [case.batch(group) for group in groups])
    losses: list[Loss] = [case.loss(model, batch.to("cpu")) for batch in batches]
    weight = sum(loss.weight for loss in losses)
    for loss in losses:
        (loss.total / weight).backward()
    total = sum(loss.total.item() for loss in losses)
    return total / float(weight), [p.grad for p in model.parameters() if p.grad is not None]


@every_trained_case
def test_one_and_four_micro_batches_give_the_same_gradient(case: Case) -> None:
    given = rows([[30], [9, 4], [12], [21], [6, 6, 6], [28], [2, 11], [17]])
    at_once, wanted = gradient(case, [given])
    groups = [take(given, slice(n, n + 2)) for n in range(0, 8, 2)]
    in_parts, found = gradient(case, groups)
    assert at_once == pytest.approx(in_parts, rel=1e-5)
    assert len(wanted) == len(found) > 0
    for one, other in zip(wanted, found, strict=True):
        assert one.isfinite().all()
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-3)


@every_trained_case
def test_overfits_one_batch(case: Case) -> None:
    torch.manual_seed(0)
    model, batch = case.build(), case.batch(rows([[24]] * 4))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    # A recurrent model's states grow apart slowly; all others take a tenth of these steps.
    means = [math.inf]
    while len(means) <= 600 and not means[-1] < 0.3 * means[1 % len(means)]:
        loss = case.loss(model, batch)
        mean = loss.total / loss.weight
        optimizer.zero_grad()
        mean.backward()
        optimizer.step()
        means.append(mean.item())
    assert means[-1] < 0.3 * means[1]


# -- the tables in the docstrings ------------------------------------------------------------------

TABLE = re.compile(
    r"^ *(ids|segments|inputs|targets|labels|backward) +\[(.*?)\] *(.*)$", re.MULTILINE
)


def read_table(text: str) -> tuple[dict[str, list[int | None]], dict[str, int], dict[str, float]]:
    """The lines, the named tokens (`[MASK] is 3`), the settings (`rate = 0.5`) of a docstring."""
    lines, named = {}, {}
    for name, cells, note in TABLE.findall(text):
        lines[name] = [None if cell == "." else int(cell) for cell in cells.split()]
        named |= {token: int(number) for token, number in re.findall(r"(\S+) is (\d+)", note)}
    settings = {key: json.loads(value) for key, value in re.findall(r"`(\w+) = ([\d.]+)`", text)}
    return lines, named, settings


@every_objective
def test_the_docstring_example_is_exact(name: str) -> None:
    cls = kinds.load("objectives", name)
    lines, named, settings = read_table(cls.__doc__)
    about_pairs = {"segments", "labels"} & set(lines)
    more = about_pairs | ({"backward"} & set(lines))
    assert set(lines) - more == {"ids", "inputs", "targets"}, "ids, inputs and targets"
    layout = re.search(r"[Ww]ith layouts? `(\w+)`", cls.__doc__)
    assert layout is not None, "a line that says: With layout `...`"
    size = 100
    by_number = {int(t[10:-1]): n for t, n in named.items() if t.startswith("<extra_id_")}
    sentinels = [by_number.get(n, size - 1) for n in range(max(by_number, default=-1) + 1)]
    words = Vocab(
        size=size,
        special={"[PAD]": 0} | {t: n for t, n in named.items() if n not in sentinels},
        sentinels=np.array(sentinels, dtype=np.int64),
        is_special=np.isin(np.arange(size), list(named.values())),
        starts_word=np.ones(size, dtype=bool),
    )
    draws = 3000  # the same text so many times: one of the draws is the one that is shown
    ids = np.tile(np.array(lines["ids"], dtype=np.int64), (draws, 1))
    documents = np.zeros_like(ids)
    positions = np.broadcast_to(np.arange(ids.shape[1]), ids.shape)
    given = Rows(ids, documents, positions, np.arange(draws))
    if about_pairs:  # as a packing labels a pair whose second text follows
        segments = np.tile(np.array(lines["segments"], dtype=np.int64), (draws, 1))
        given = replace(given, segments=segments, labels=np.where(positions == 0, 0, -1))
    example = cls(**settings).corrupt(given, RowRng(SEED, given.numbers), words)
    batch = kinds.load("layouts", layout[1])().arrange(example, words)
    inputs = batch.ids if batch.source is None else batch.source.ids
    targets = np.where(batch.weights > 0, batch.targets, -1)
    wanted = [-1 if cell is None else cell for cell in lines["targets"]]
    # Rows as wide as the widest draw: padding is 0, and not scored.
    shown = [*lines["inputs"], *[0] * (inputs.shape[1] - len(lines["inputs"]))]
    wanted += [-1] * (targets.shape[1] - len(wanted))
    if "backward" in lines:
        assert batch.backward is not None
        found = np.where(batch.backward.weights > 0, batch.backward.targets, -1)
        assert found[0].tolist() == [-1 if cell is None else cell for cell in lines["backward"]]
    labels = np.full_like(targets, -1) if example.labels is None else example.labels
    classes = [-1 if cell is None else cell for cell in lines.get("labels", [])]
    is_shown = [
        row.tolist() == shown and answer.tolist() == wanted and label[: len(classes)] == classes
        for row, answer, label in zip(inputs, targets, labels.tolist(), strict=True)
    ]
    assert any(is_shown), f"no draw gives the table; the first: {inputs[0]}, {targets[0]}"


@pytest.mark.parametrize("recipe", [n for n in config.recipe_names() if n.endswith("_tiny")])
def test_properties_of_an_objective_match_its_examples(recipe: str) -> None:
    """What is predicted, in what order, the forms of sources and what closes them."""
    made = load_recipe(recipe)
    vocab, objective = dummy_vocab(made.tokenizer), made.objective
    example = dummy_example(made, vocab, 64)
    seen = "next" if example.source is None else "in_place" if example.is_aligned else "target"
    assert objective.predicts == seen
    assert objective.predicts_in_order == (example.order is not None)
    forms = set()
    if seen == "target":
        for ids, documents in zip(example.source.ids, example.source.documents, strict=True):
            text = ids[documents >= 0]
            assert not objective.end or text[-1] == vocab.id(objective.end)
            modes = {mode_id(form.mode, vocab) for form in objective.source_forms} - {None}
            mode = int(text[0]) if text[0] in modes else None
            inside = text[mode is not None :]
            forms.add((mode, bool(np.isin(inside, vocab.sentinels).any())))
    stated = {(mode_id(f.mode, vocab), f.has_sentinels) for f in objective.source_forms}
    assert stated == forms
    with torch.device("meta"):
        model = made.build(vocab)
    assert ("token" in model.heads) == objective.predicts_tokens
