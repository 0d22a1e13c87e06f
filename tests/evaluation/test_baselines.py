"""Counts are scored on the model's own predictions: the same tokens at the same positions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from foreword.data.prepared_text import PreparedText
from foreword.data.write_shards import PrepareSettings, prepare
from foreword.evaluation import heldout
from foreword.evaluation.baselines import prediction_name
from foreword.evaluation.entropy import BigramCounts
from foreword.evaluation.prompting import PromptedModel
from foreword.objectives.masked import Masked
from foreword.objectives.replaced_token import ReplacedToken
from foreword.objectives.sentence_order import SentenceOrder
from foreword.objectives.sum import Sum
from foreword.runs.setup import heldout_feed
from foreword.text.tokenizer import Tokenizer
from foreword.types import Array
from tests.evaluation.conftest import Make

Made = Callable[..., tuple[PromptedModel, PreparedText]]


@pytest.fixture
def make(make_prompted: Make, tokenizer: Tokenizer, tmp_path: Path) -> Made:
    def made(family: str, **changes: object) -> tuple[PromptedModel, PreparedText]:
        text = tmp_path / "text.txt"
        lines = [f"The cat sat on the mat. The dog ran to the river {n}." for n in range(300)]
        text.write_text("\n\n".join(lines), encoding="utf-8")
        prepare([text], tokenizer, tmp_path / "shards", PrepareSettings(heldout=0.2))
        return make_prompted(family, **changes), PreparedText.load(tmp_path / "shards")

    return made


def predicted(prompted: PromptedModel, prepared: PreparedText) -> Array:
    """Return the tokens that the held-out loss is over."""
    feed = heldout_feed(prompted.recipe, prepared.heldout, prompted.vocab)
    batches = list(feed.heldout(heldout.ALL))
    return np.concatenate([b.targets[np.asarray(b.weights) > 0] for b in batches])


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
    counts = BigramCounts.of(prepared.train, prompted.vocab.size)
    tokens = np.asarray(prepared.heldout.tokens, dtype=np.int64)
    assert unigram.loss == pytest.approx(counts.unigram_nats(tokens).mean(), abs=0.2)
    assert unigram.bits_per_byte is not None


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
