"""Counts are scored on the model's own predictions: the same tokens at the same positions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from foreword.data.holdout import SplitFiles
from foreword.data.prepared_text import PreparedText
from foreword.data.write_shards import PrepareSettings, prepare
from foreword.evaluation import heldout
from foreword.evaluation.baselines import BigramCounts, prediction_name
from foreword.objectives.masked import Masked
from foreword.objectives.replaced_token import ReplacedToken
from foreword.objectives.sentence_order import SentenceOrder
from foreword.objectives.sum import Sum
from foreword.runs.setup import heldout_feed
from foreword.runs.trained_model import TrainedModel
from foreword.text.tokenizer import Tokenizer
from foreword.types import Array
from tests.evaluation.conftest import Make

Made = Callable[..., tuple[TrainedModel, PreparedText]]


@pytest.fixture
def make(make_prompted: Make, tokenizer: Tokenizer, tmp_path: Path) -> Made:
    def made(family: str, **changes: object) -> tuple[TrainedModel, PreparedText]:
        text = tmp_path / "text.txt"
        lines = [f"The cat sat on the mat. The dog ran to the river {n}." for n in range(300)]
        text.write_text("\n\n".join(lines), encoding="utf-8")
        prepare(
            SplitFiles.find([text]), tokenizer, tmp_path / "shards", PrepareSettings(heldout=0.2)
        )
        return make_prompted(family, **changes), PreparedText.load(tmp_path / "shards")

    return made


def predicted(prompted: TrainedModel, prepared: PreparedText) -> Array:
    """Return the tokens that the held-out loss is over."""
    feed = heldout_feed(prompted.recipe, prepared.heldout, prompted.vocab)
    batches = list(feed.heldout(heldout.ALL))
    return np.concatenate([b.targets[np.asarray(b.weights) > 0] for b in batches])


def counted(documents: list[Array], vocab: int) -> BigramCounts:
    pairs = np.concatenate([document[:-1] * vocab + document[1:] for document in documents])
    tokens = np.concatenate(documents)
    unigrams = np.bincount(tokens, minlength=vocab)
    return BigramCounts(vocab, unigrams, *np.unique(pairs, return_counts=True), len(tokens))


def test_smoothed_probabilities_sum_to_1() -> None:
    random = np.random.default_rng(0)
    counts = counted([random.integers(0, 8, n) for n in (30, 1, 12)], 10)
    assert np.exp(-counts.unigram_nats(np.arange(10))).sum() == pytest.approx(1.0)
    for first in range(10):  # 8 and 9 never occur
        p = np.exp(-counts.bigram_nats(first * 10 + np.arange(10)))
        assert p.sum() == pytest.approx(1.0)
        assert p.min() > 0


def test_the_smoothing_of_counts_is_that_by_hand() -> None:
    counts = counted([np.array([1, 2, 1, 2, 1, 3]), np.array([1, 2])], 10)
    unigram = np.exp(-counts.unigram_nats(np.array([1, 2, 9])))
    assert unigram == pytest.approx([5 / 18, 4 / 18, 1 / 18])
    # Pairs: 12 three times, 21 twice, 13 once; n1 = n2 = 1, so each gives up 1/3.
    p = np.exp(-counts.bigram_nats(np.array([12, 29])))
    assert p == pytest.approx([(3 - 1 / 3 + 2 / 3 * unigram[1]) / 4, 1 / 3 * unigram[2] / 2])


@pytest.mark.parametrize(
    ("family", "name"),
    [
        ("encoder", "masked token"),
        ("encoder_decoder", "target token"),
        ("xlnet", "predicted token"),
    ],
)
def test_unigrams_are_scored_on_the_tokens_that_the_model_predicts(
    family: str, name: str, make: Made
) -> None:
    prompted, prepared = make(family)
    model, unigram = heldout.on_prepared(prompted, prepared)
    tokens = predicted(prompted, prepared)
    assert unigram.predictions == model.predictions == len(tokens)
    assert unigram.bits_per_byte is None
    assert unigram.about.startswith(f"each {name} by its frequency among ")
    assert prediction_name(prompted.recipe) == name
    # No table of frequencies is better than their own, and that of the training text is near it.
    shares = np.bincount(tokens) / len(tokens)
    own = -np.log(shares[tokens]).mean()
    assert own <= unigram.loss < own + 0.3


def test_all_tokens_of_the_text_are_all_predictions_of_a_causal_model(make: Made) -> None:
    prompted, prepared = make("decoder")
    model, bigram, unigram = heldout.on_prepared(prompted, prepared)
    assert [bigram.what, unigram.what] == ["bigram counts", "unigram counts"]
    assert model.predictions == bigram.predictions == unigram.predictions
    counts = counted([np.asarray(prepared.train.tokens, dtype=np.int64)], prompted.vocab.size)
    tokens = np.asarray(prepared.heldout.tokens, dtype=np.int64)
    assert unigram.loss == pytest.approx(counts.unigram_nats(tokens).mean(), abs=0.2)
    assert unigram.bits_per_byte is not None


def test_the_standard_error_of_a_bound_falls_with_its_draws(make: Made) -> None:
    prompted, prepared = make("diffusion")
    one, few, many = (heldout.on_prepared(prompted, prepared, draws=n)[0] for n in (1, 4, 64))
    assert "standard error" not in one.about
    rough, fine = (
        float(each.about.partition("standard error of ")[2].split()[0]) for each in (few, many)
    )
    assert 0 < fine < rough
    assert abs(few.loss - many.loss) < 4 * rough


def test_fewer_rows_are_fewer_predictions_of_the_counts_too(make: Made) -> None:
    prompted, prepared = make("encoder")
    model, unigram = heldout.on_prepared(prompted, prepared, rows=2)
    assert model.predictions == unigram.predictions
    assert unigram.predictions < len(predicted(prompted, prepared))


def test_the_part_of_a_loss_that_predicts_tokens_has_a_name() -> None:
    assert Masked().predicts.component == ""
    assert Sum((SentenceOrder(), Masked())).predicts.component == "masked"
    assert ReplacedToken().predicts.component == "generator"
    assert ReplacedToken(replacements="uniform").predicts.component == ""


def test_electra_compares_its_generators_loss_with_counts(make: Made) -> None:
    prompted, prepared = make("encoder", objective=ReplacedToken(generator=1.0))
    whole, generator, unigram = heldout.on_prepared(prompted, prepared)
    assert generator.what.endswith(": generator")
    assert generator.loss == whole.components["generator"]
    assert generator.predictions == unigram.predictions == len(predicted(prompted, prepared))


def test_masked_tokens_are_counted_until_they_are_as_many_as_the_text_has(make: Made) -> None:
    prompted, prepared = make("encoder")
    unigram = heldout.on_prepared(prompted, prepared)[1]
    counted = int(unigram.about.split(" among ")[1].split()[0].replace(",", ""))
    assert counted >= prepared.train.tokens_total
