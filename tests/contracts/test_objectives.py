"""What every objective promises, for every file in `objectives/`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from foreword.data.rng import RowRng
from foreword.objectives._contract import Objective, mode_id
from foreword.runs.dry_run import dummy_example, dummy_vocab
from foreword.runs.recipe import load_recipe
from foreword.settings import config, kinds
from foreword.testing.objectives import (
    CASE_CHECKS,
    OBJECTIVE_CHECKS,
    check_micro_batches_give_the_same_gradient,
    check_no_prediction_sees_its_target,
    check_overfits_one_batch,
)
from foreword.types import Backward, CausalRows, Example, PairLabels, PredictionOrder, Rows, Vocab

from .cases import CASES, FIRST, SEED, Case, rows, vocab

OBJECTIVES = kinds.names("objectives")
MIXED = [[20, 9, 3], [32], [25], [1, 30], [16, 16], [2, 2, 2]]
PAIRS = ["next_sentence", "sentence_order"]
# What they predict stands where they read; the others' targets are texts of their own.
IN_PLACE = {
    "diffusion",
    "hybrid",
    "masked",
    "permutation",
    "replaced_token",
    "span_masked",
    "sum",
    *PAIRS,
}
# Deshuffled, the source is all tokens of the target and only their order is hidden; of pairs no
# token is predicted.
UNHIDDEN = ["deshuffle", *PAIRS]
every_objective = pytest.mark.parametrize("name", OBJECTIVES)


def corrupt(name: str, packed: Rows, **settings: Any) -> Example:
    return kinds.load("objectives", name)(**settings).corrupt(
        packed, RowRng(SEED, packed.numbers), vocab()
    )


@every_objective
def test_every_objective_has_a_layout_and_a_model(name: str) -> None:
    assert any(case.objective == name for case in CASES)


@every_objective
@pytest.mark.parametrize("check", OBJECTIVE_CHECKS, ids=lambda check: check.__name__)
def test_every_objective_keeps_the_contract(check: Callable[[Objective], None], name: str) -> None:
    check(kinds.load("objectives", name)())


def promises(case: Case, check: Callable[[Case], None]) -> bool:
    """Whether a check is of something that the case promises."""
    if check is check_no_prediction_sees_its_target:
        return case.objective not in UNHIDDEN
    needs_gradients = (check_micro_batches_give_the_same_gradient, check_overfits_one_batch)
    return not (case.is_count_based and check in needs_gradients)


@pytest.mark.product(pairs=True)
@pytest.mark.parametrize(
    ("case", "check"),
    [
        pytest.param(case, check, id=f"{case}-{check.__name__}")
        for case in CASES
        for check in CASE_CHECKS
        if promises(case, check)
    ],
)
def test_every_objective_keeps_the_contract_with_a_layout_and_a_model(
    case: Case, check: Callable[[Case], None]
) -> None:
    check(case)


@pytest.mark.parametrize("name", sorted(IN_PLACE))
def test_special_tokens_are_never_corrupted_in_place(name: str) -> None:
    given = rows([[5] * 40] * 4)
    example = corrupt(name, given)
    assert example.source is not None
    stands = example.target.ids
    if name == "sentence_order":  # what it swaps takes its special token with it
        assert np.array_equal(np.sort(stands), np.sort(given.ids))
    else:
        assert np.array_equal(stands, given.ids)
    is_special = stands < FIRST
    assert is_special.any()
    assert np.array_equal(example.source.ids[is_special], stands[is_special])
    causal = example.part(CausalRows)
    is_masked_row = True if causal is None else ~causal.is_causal[:, None]
    assert (example.weights[is_special & is_masked_row] == 0).all()


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


def tables(docstring: str) -> list[str]:
    """The parts of a docstring, each with the text before one table; what follows is the last's."""
    begins = [match.start() for match in re.finditer(r"^ *ids +\[", docstring, re.MULTILINE)]
    ends = [docstring.index("\n\n", begin) for begin in begins]
    return [docstring[a:b] for a, b in pairwise([0, *ends[:-1], len(docstring)])]


@every_objective
def test_the_docstring_example_is_exact(name: str) -> None:
    cls = kinds.load("objectives", name)
    for text in tables(cls.__doc__):
        check_table(cls, text)


def check_table(cls: Any, text: str) -> None:
    lines, named, settings = read_table(text)
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
    draws = 3000  # copies of the same text: one of them is corrupted as in the docstring
    ids = np.tile(np.array(lines["ids"], dtype=np.int64), (draws, 1))
    documents = np.zeros_like(ids)
    positions = np.broadcast_to(np.arange(ids.shape[1]), ids.shape)
    given = Rows(ids, documents, positions, np.arange(draws))
    if about_pairs:  # as a packing labels a pair whose second text follows
        segments = np.tile(np.array(lines["segments"], dtype=np.int64), (draws, 1))
        given = replace(
            given, segments=segments, parts=(PairLabels(np.where(positions == 0, 0, -1)),)
        )
    example = cls(**settings).corrupt(given, RowRng(SEED, given.numbers), words)
    batch = kinds.load("layouts", layout[1])().arrange(example, words)
    inputs = batch.ids if batch.source is None else batch.source.ids
    targets = np.where(batch.weights > 0, batch.targets, -1)
    expected = [-1 if cell is None else cell for cell in lines["targets"]]
    # Rows as wide as the widest draw: padding is 0, and not scored.
    shown = [*lines["inputs"], *[0] * (inputs.shape[1] - len(lines["inputs"]))]
    expected += [-1] * (targets.shape[1] - len(expected))
    if "backward" in lines:
        backward = batch.require(Backward)
        actual = np.where(backward.weights > 0, backward.targets, -1)
        assert actual[0].tolist() == [-1 if cell is None else cell for cell in lines["backward"]]
    pairs = example.part(PairLabels)
    labels = np.full_like(targets, -1) if pairs is None else pairs.labels
    classes = [-1 if cell is None else cell for cell in lines.get("labels", [])]
    is_shown = [
        row.tolist() == shown and answer.tolist() == expected and label[: len(classes)] == classes
        for row, answer, label in zip(inputs, targets, labels.tolist(), strict=True)
    ]
    assert any(is_shown), f"no draw gives the table; the first: {inputs[0]}, {targets[0]}"


@pytest.mark.parametrize("recipe", [n for n in config.RECIPES.names() if n.endswith("_tiny")])
def test_properties_of_an_objective_match_its_examples(recipe: str) -> None:
    """What is predicted, in what order, the forms of sources and what closes them."""
    made = load_recipe(recipe)
    vocab, objective = dummy_vocab(made.tokenizer), made.objective
    example = dummy_example(made, vocab, 64)
    seen = "next" if example.source is None else "in_place" if example.is_aligned else "target"
    if example.part(CausalRows) is not None:
        seen = "next_and_in_place"
    assert objective.predicts.form == seen
    if seen.endswith("in_place"):
        assert kinds.name_of(objective) in IN_PLACE
    assert objective.predicts.in_order == (example.part(PredictionOrder) is not None)
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
    assert ("token" in model.heads) == objective.predicts.tokens
