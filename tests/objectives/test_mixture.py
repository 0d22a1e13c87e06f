from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from foreword.data.rng import RowRng
from foreword.errors import UserError
from foreword.objectives.causal import Causal
from foreword.objectives.deshuffle import Deshuffle
from foreword.objectives.mixture import Mixture
from foreword.objectives.prefix import Prefix
from foreword.objectives.span_corruption import SpanCorruption
from foreword.settings import config
from foreword.settings.kinds import Part
from foreword.testing.objectives import corrupt
from foreword.types import Array, Example

from ..contracts.cases import SEED, rows, vocab

R, X, S = (int(n) for n in vocab().sentinels[[99, 98, 97]])


def firsts(example: Example) -> Array:
    assert example.source is not None
    return example.source.ids[:, 0]


def test_modes_are_drawn_as_often_as_their_objectives() -> None:
    counts = Counter(firsts(corrupt(Mixture(), rows([[20]] * 7000))).tolist())
    assert sorted(counts) == sorted([R, X, S])
    for mode, share in ((R, 2), (X, 4), (S, 1)):
        assert counts[mode] == pytest.approx(1000 * share, abs=150)


def test_shares_are_relative_frequencies() -> None:
    mixture = Mixture((Prefix(), Deshuffle()), (3.0, 1.0), ("[CLS]", "[SEP]"))
    counts = Counter(firsts(corrupt(mixture, rows([[9]] * 4000))).tolist())
    assert counts[vocab().id("[CLS]")] == pytest.approx(3000, abs=120)
    assert counts[vocab().id("[SEP]")] == pytest.approx(1000, abs=120)


def test_each_row_is_corrupted_by_its_objective() -> None:
    given = rows([[40, 25], [65], [10, 20, 35], [65]] * 8)
    mixed = corrupt(Mixture((Deshuffle(), Prefix(end="")), (), ()), given)
    assert mixed.source is not None
    kinds = set()
    for row in range(len(given)):
        source, target = (s.ids[row, s.documents[row] >= 0] for s in (mixed.source, mixed.target))
        text = given.ids[row].tolist()
        is_prefix = len(source) < len(text)
        kinds.add(is_prefix)
        if is_prefix:
            assert len(source) + len(target) == len(text)
        else:
            assert Counter(source.tolist()) == Counter(target.tolist())
    assert kinds == {False, True}


def test_every_document_has_its_mode_and_no_span_is_marked_by_one() -> None:
    example = corrupt(Mixture(), rows([[30, 20, 10]] * 60))
    source, target = example.source, example.target
    assert source is not None
    assert not np.isin(target.ids, [R, X, S]).any()
    is_mode = np.isin(source.ids, [R, X, S])
    assert np.array_equal(is_mode, (source.positions == 0) & (source.documents >= 0))
    assert (source.ids[is_mode].reshape(60, 3) == source.ids[:, :1]).all()


def test_a_mixture_survives_a_round_trip_through_a_recipe() -> None:
    table = {
        "kind": "mixture",
        "objectives": [{"kind": "prefix", "rate": 0.25}, "deshuffle"],
        "shares": [2, 1],
        "modes": ["<extra_id_99>", ""],
    }
    part = Part("objectives")
    built = config.build_kind(part, table, "objective")
    assert built == Mixture((Prefix(0.25), Deshuffle()), (2.0, 1.0), ("<extra_id_99>", ""))
    again = {"kind": "mixture", **config.to_table(built)}
    assert config.build_kind(part, again, "objective") == built
    assert hash(built) == hash(replace(built))


def test_a_tokenizer_without_the_mode_token_is_refused() -> None:
    few = replace(vocab(), sentinels=vocab().sentinels[:50])
    given = rows([[20]])
    with pytest.raises(UserError, match=r"objective\.modes: <extra_id_99>, .* has 50 sentinels"):
        Mixture().corrupt(given, RowRng(SEED, given.numbers), few)
    with pytest.raises(UserError, match=r"no special token \[S2S\]"):
        corrupt(Mixture((Prefix(),), (), ("[S2S]",)), given)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"objectives": ()}, "objectives: must name at least one"),
        ({"objectives": (Causal(),), "modes": ()}, "objectives: .* got Causal"),
        ({"objectives": (SpanCorruption(),)}, "modes: must be 1, one per objective, got 7"),
        ({"shares": (1.0,)}, "shares: must be 7"),
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Mixture(**settings)
