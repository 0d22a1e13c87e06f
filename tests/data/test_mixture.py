from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foreword.data.lazy_tokens import ChainedTokens
from foreword.data.learning import train_on_sources
from foreword.data.mixed_rows import MixedRows
from foreword.data.mixture import DECAY, DataSettings, effective_epochs, stages_of
from foreword.data.mixture_plan import MixturePlan
from foreword.data.packing.documents import Documents
from foreword.data.packing.pairs import Pairs
from foreword.data.packing.stream import Stream
from foreword.data.shards import Shards
from foreword.data.text_files import ReadSettings
from foreword.errors import UserError
from foreword.settings import config
from foreword.text.tokenizers.word import Word
from foreword.types import NextToken, PairLabels
from tests.data.packing import corpora

STEPS, BATCH = 400, 16


def settings(*sources: dict[str, Any], **more: Any) -> DataSettings:
    """Sources named a, b, c, with these settings."""
    named = [{"name": n, "path": n, **one} for n, one in zip("abcdef", sources, strict=False)]
    return config.build(DataSettings, {"sources": named, **more}, "data")


def plan(
    made: DataSettings, rows: list[float], steps: int | None = STEPS, batch: int = BATCH
) -> MixturePlan:
    return staged([(0.0, made)], rows, steps, batch)


def staged(
    parts: list[tuple[float, DataSettings]],
    rows: list[float],
    steps: int | None = STEPS,
    batch: int = BATCH,
    stretch: int = 1,
) -> MixturePlan:
    """The plan of a training whose sources have these weights from these shares of it on."""
    limits = [source.epochs for source in parts[0][1].sources]
    weights = [(share, made.weights(rows)) for share, made in parts]
    total = None if steps is None else steps * batch
    return MixturePlan(limits, weights, rows, total, batch, seed=1, stretch=stretch)


def shards_in(folder: Path, lengths: list[int]) -> Shards:
    folder.mkdir()
    return corpora.shards(folder, lengths)


@pytest.mark.parametrize("weights", [[0.7, 0.3], [18.11, 14.4, 0.14, 67.35], [1, 1, 1, 1, 1]])
def test_shares_are_the_weights_within_a_thousandth(weights: list[float]) -> None:
    made = plan(settings(*({"weight": weight} for weight in weights)), [100.0] * len(weights))
    sources, _ = made.locate(np.arange(STEPS * BATCH))
    shares = np.bincount(sources, minlength=len(weights)) / len(sources)
    assert np.abs(shares - np.array(weights) / sum(weights)).max() < 1e-3
    assert np.allclose(shares, made.shares())


def test_every_step_holds_the_mixture_in_another_order() -> None:
    made = plan(settings({"weight": 3}, {"weight": 1}), [100.0, 100.0])
    steps = made.locate(np.arange(64))[0].reshape(4, BATCH)
    assert (steps.sum(1) == BATCH / 4).all()
    assert len({tuple(step) for step in steps}) > 1


def test_each_row_of_a_source_is_read_once_and_in_any_grouping_the_same() -> None:
    made = plan(settings({"weight": 0.8}, {"weight": 0.2}), [100.0, 100.0])
    numbers = np.arange(STEPS * BATCH)
    sources, rows = made.locate(numbers)
    for n in range(2):
        assert sorted(rows[sources == n]) == list(range((sources == n).sum()))
    some = np.random.default_rng(1).permutation(numbers)[:300]
    again = made.locate(some)
    assert (again[0] == sources[some]).all() and (again[1] == rows[some]).all()


def test_a_source_with_a_limit_of_epochs_is_spread_over_training() -> None:
    made = plan(settings({"weight": 1}, {"weight": 1, "epochs": 2}), [1e4, 100.0])
    sources, _ = made.locate(np.arange(STEPS * BATCH))
    assert (sources == 1).sum() == 200 == made.rows_read()[1]
    quarters = (sources == 1).reshape(4, -1).sum(1)
    assert (np.abs(quarters - 50) <= 2).all()


def weighted(*weights: float) -> DataSettings:
    return settings(*({"weight": weight} for weight in weights))


def test_weights_change_where_a_part_begins() -> None:
    parts = [(0.0, weighted(1, 0, 1)), (0.5, weighted(1, 0, 0)), (0.9, weighted(1, 3, 0))]
    made = staged(parts, [100.0] * 3)
    sources, rows = made.locate(np.arange(STEPS * BATCH))
    shares = [np.bincount(part, minlength=3) / len(part) for part in np.split(sources, 10)]
    assert np.allclose(shares[0], [0.5, 0, 0.5], atol=1e-3)
    assert np.allclose(shares[6], [1, 0, 0])
    assert np.allclose(shares[9], [0.25, 0.75, 0], atol=1e-3)
    # Parts that begin when they were expected to, or at other steps, known as they begin.
    expected = [0, STEPS // 2, 9 * STEPS // 10]
    for begins, same in ((expected, STEPS), (expected[:2], expected[2]), ([0, 111, 112], 111)):
        begun = made.begun(begins).locate(np.arange(STEPS * BATCH))
        assert (
            np.stack(begun)[:, : same * BATCH] == [sources[: same * BATCH], rows[: same * BATCH]]
        ).all()
        for n in range(3):
            assert (np.sort(begun[1][begun[0] == n]) == np.arange((begun[0] == n).sum())).all()


def test_a_source_with_a_limit_is_spread_over_the_parts_that_read_it() -> None:
    sources = [{"weight": 1}, {"weight": 1, "epochs": 2}]
    parts = [(0.0, settings(sources[0], {**sources[1], "weight": 0})), (0.5, settings(*sources))]
    quarters = (
        (staged(parts, [1e4, 100.0]).locate(np.arange(STEPS * BATCH))[0]).reshape(4, -1).sum(1)
    )
    assert (np.abs(quarters - [0, 0, 100, 100]) <= 2).all()


def test_stages_of_sources_in_an_earlier_recipe_are_stages_of_the_recipe() -> None:
    old = {"wiki": "", "books": "last 10 %", "forum": "first 50 %"}
    sources = [{"name": n, "path": n, "weight": 2.0, "stage": stage} for n, stage in old.items()]
    data, stages = stages_of({"sources": sources})
    assert [source["weight"] for source in data["sources"]] == [2, 2, 0]
    assert [round(stage["share"], 9) for stage in stages] == [0.5, 0.4]
    by_stage = [stage["data"]["sources"] for stage in stages]
    assert [[one[name]["weight"] for name in old] for one in by_stage] == [[2, 0, 2], [2, 0, 0]]
    assert stages_of({"sources": [{**sources[0]}]})[1] == []


def test_temperature_draws_between_by_size_and_equally() -> None:
    none: tuple[dict[str, Any], ...] = ({}, {})
    assert settings(*none, temperature=1.0).weights([900, 100]) == pytest.approx([0.9, 0.1])
    assert settings(*none, temperature=2.0).weights([900, 100]) == pytest.approx([0.75, 0.25])
    assert settings(*none, temperature=1e6).weights([900, 100]) == pytest.approx(
        [0.5, 0.5], abs=1e-4
    )


def test_weights_that_add_up_to_one_are_kept_as_they_are_on_every_python() -> None:
    # One by one, as `sum` adds them before Python 3.12, they give 0.9999999999999999.
    given = [0.7, 0.2, 0.1]
    assert settings(*({"weight": one} for one in given)).weights([1, 1, 1]) == given


def test_repeated_tokens_are_worth_less() -> None:
    # Muennighoff et al. 2023, equation 5, with R* = 15.4: nearly all up to 4 epochs, 1 - 1 / e of
    # the repetitions at R* + 1, and never more than 1 + R*.
    assert effective_epochs(0.3) == 0.3
    assert effective_epochs(4) == pytest.approx(3.73, abs=0.01)
    assert effective_epochs(1 + DECAY) == pytest.approx(1 + DECAY * (1 - 1 / math.e))
    assert effective_epochs(1e9) == pytest.approx(16.39, abs=0.01)


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        ([{}], r"data.sources\[0\].weight: source 'a' needs a weight"),
        ([{"weight": 1, "stage": "last 9 %"}], r"data.sources\[0\].stage: is now \[\[stages\]\]"),
        ([{"weight": 1}, {"weight": 1, "name": "A"}], r"data.sources\[1\].name: there is another"),
        ([{"weight": 1, "name": "../x"}], r"data.sources\[0\].name: at most 64 letters"),
    ],
)
def test_impossible_sources_are_refused(sources: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(UserError, match=message):
        settings(*sources)


def test_a_weight_is_a_factor_with_a_temperature() -> None:
    for weight, first in ((2, 0.75), (0, 0.0)):
        made = settings({"weight": weight}, {}, temperature=1.0)
        assert made.weights([900, 600]) == pytest.approx([first, 1 - first])


def test_sources_that_end_before_training_are_refused() -> None:
    limited = settings({"weight": 1, "epochs": 1}, {"weight": 1, "epochs": 1})
    with pytest.raises(UserError, match=r"after 12 of 400 steps; .* at most --epochs 1$"):
        plan(limited, [100.0, 100.0])
    with pytest.raises(UserError, match="hours or flops"):
        plan(limited, [100.0, 100.0], steps=None)
    assert plan(limited, [100.0, 104.0], steps=13).epochs().max() < 1.05  # the last step may
    with pytest.raises(UserError, match="no source has a weight above 0 at 60% of training"):
        staged([(0.0, weighted(1)), (0.6, weighted(0))], [100.0])


@pytest.mark.parametrize("packing", [Documents(length=8), Pairs(length=16, random=0.5)])
def test_a_mixed_row_is_the_row_of_its_source(packing: Any, tmp_path: Path) -> None:
    vocab = corpora.vocab()
    each = [shards_in(tmp_path / name, [40, 30, 50]) for name in ("a", "b")]
    packed = {n: packing.open(s, vocab, 3 + n, 4) for n, s in enumerate(each)}
    rows = [float(one.rows_per_epoch) for one in packed.values()]
    mixed = MixedRows(
        {str(n): one for n, one in packed.items()},
        plan(settings({"weight": 2}, {"weight": 1}), rows, batch=4),
    )
    numbers = np.array([7, 0, 21, 2, 5])
    together = mixed.rows(numbers)
    assert (together.numbers == numbers).all()
    for n, (source, row) in enumerate(zip(*mixed.plan.locate(numbers), strict=True)):
        alone = packed[int(source)].rows(np.array([row]))
        assert (together.ids[n] == alone.ids[0]).all()
        assert (together.positions[n] == alone.positions[0]).all()
        for kind, name in ((NextToken, "ids"), (PairLabels, "labels")):
            if (part := alone.part(kind)) is not None:
                assert (getattr(together.require(kind), name)[n] == getattr(part, name)[0]).all()


def test_streams_of_a_mixture_read_stretches_of_its_sources(tmp_path: Path) -> None:
    vocab, batch, stretch, steps = corpora.vocab(), 4, 5, 60
    each = [shards_in(tmp_path / name, [330, 300, 310]) for name in ("a", "b")]
    packed = {str(n): Stream(length=8).open(one, vocab, 0, 1) for n, one in enumerate(each)}
    rows = [float(one.rows_per_epoch) for one in packed.values()]
    made = staged([(0.0, weighted(3, 1))], rows, steps, batch, stretch)
    mixed = MixedRows(packed, made)
    numbers = np.arange(steps * batch)
    read = mixed.rows(numbers)
    source, row = made.locate(numbers)
    assert (np.bincount(source) == [180, 60]).all() and (made.rows_read() == [180, 60]).all()
    # Within a stretch each stream of the batch continues its source's text.
    whole = (steps // stretch, stretch, batch)
    ids, following = read.ids.reshape(*whole, 8), read.require(NextToken).ids.reshape(whole)
    assert (np.diff(source.reshape(whole), axis=1) == 0).all()
    assert (np.diff(row.reshape(whole), axis=1) == 1).all()
    assert (following[:, :-1] == ids[:, 1:, :, 0]).all()
    # Together the stretches are the text of each source, and a row is found without the others.
    for n, one in enumerate(packed.values()):
        assert (np.sort(row[source == n]) == np.arange((source == n).sum())).all()
        assert (read.ids[source == n] == one.rows(row[source == n]).ids).all()
    some = np.array([33, 7, 200])
    assert (mixed.rows(some).ids == read.ids[some]).all()


def test_limits_of_epochs_end_with_a_stretch() -> None:
    sources = settings({"weight": 1, "epochs": 1}, {"weight": 1, "epochs": 1})
    made = staged([(0.0, sources)], [101.0, 157.0], 65, 4, stretch=7)
    assert made.rows_read().sum() >= 258
    assert made.epochs().max() < 1 + 2 * 7 / 101


def test_chained_shards_are_the_documents_of_all(tmp_path: Path) -> None:
    each = [shards_in(tmp_path / name, sizes) for name, sizes in (("a", [7, 3]), ("b", [5]))]
    chained = Shards.chain(tmp_path / "all", each)
    tokens = np.concatenate([one.tokens for one in each])
    assert len(chained) == 3 and chained.tokens_total == len(tokens) == len(chained.tokens)
    assert (chained.document_starts == [0, 7, 10, 15]).all()
    assert (np.take(chained.tokens, [[9, 10], [0, 14]]) == tokens[[[9, 10], [0, 14]]]).all()
    for part in (slice(5, 12), slice(None, 3), slice(11, -1), slice(9, 2), slice(2, 14, 3)):
        assert np.array_equal(chained.tokens[part], tokens[part])
    with pytest.raises(IndexError):
        ChainedTokens([tokens]).take(np.array([15]))


def test_a_tokenizer_sees_the_sources_by_their_weights(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("aa bb\n" * 900)
    (tmp_path / "b.txt").write_text("cc dd\n" * 100)
    sources = [(tmp_path / "a.txt", 0.25), (tmp_path / "b.txt", 0.75)]
    seen: list[str] = []

    class Kept(Word):
        def train(self, texts: Any, note: Any = None) -> Any:
            seen.extend(texts)
            return super().train(seen, note)

    read = ReadSettings(documents="line")
    train_on_sources(Kept(min_count=1, vocab=200), sources, read, lambda _: lambda *_: None)
    assert sum(map(len, seen)) == pytest.approx(5000, rel=0.03)
    assert seen.count("cc dd") / len(seen) == pytest.approx(0.75, abs=0.01)
