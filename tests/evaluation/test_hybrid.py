"""A model of causal and masked rows, used as either."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from foreword.errors import UserError
from foreword.evaluation.decoding import generate
from foreword.evaluation.filling import fill
from foreword.evaluation.samples import samples
from foreword.evaluation.sampling import Sampling
from foreword.evaluation.scorer import padded
from foreword.evaluation.scoring import LIKELIHOOD, measure_of, score
from foreword.layouts.decoder import Decoder
from foreword.objectives.causal import Causal
from foreword.objectives.hybrid import Hybrid
from foreword.runs.trained_model import TrainedModel
from foreword.tuning.input_template import template_of
from tests.evaluation.conftest import Make
from tests.evaluation.test_filling import SENTENCE, rows_of, train


def as_decoder(prompted: TrainedModel) -> TrainedModel:
    """The same weights as a causal model."""
    recipe = replace(prompted.recipe, objective=Causal(), layout=Decoder())
    return replace(prompted, recipe=recipe)


@pytest.mark.full
def test_one_model_fills_and_continues_what_it_was_trained_on(make_prompted: Make) -> None:
    prompted = make_prompted("hybrid", objective=Hybrid(causal=0.5))
    train(prompted, SENTENCE)
    filled = fill(prompted, "The [MASK] sat on the [MASK].")
    assert filled.text == "The «cat» sat on the «mat»."
    assert filled.blanks[0][0].probability > 0.5
    greedy = Sampling(tokens=4, temperature=0)
    (continued,) = generate(prompted, ["The cat sat"], greedy)
    assert continued.text == " on the mat."


def test_it_scores_text_like_a_causal_model(make_prompted: Make) -> None:
    prompted = make_prompted("hybrid")
    assert measure_of(prompted) == LIKELIHOOD
    expected = score(as_decoder(prompted), SENTENCE)
    assert np.allclose(score(prompted, SENTENCE).log_probs, expected.log_probs, atol=1e-5)


def test_it_reads_text_in_both_directions(make_prompted: Make) -> None:
    prompted = make_prompted("hybrid")
    one, two = (
        prompted.tokenizer.encode(text) for text in (SENTENCE, SENTENCE.replace("mat", "log"))
    )
    states = prompted.encode(padded([one, two]))
    assert not np.allclose(states[0, 0], states[1, 0], atol=1e-3)
    causal = as_decoder(prompted).encode(padded([one, two]))
    assert np.allclose(causal[0, 0], causal[1, 0], atol=1e-5)


def test_fine_tuning_reads_it_in_both_directions(make_prompted: Make) -> None:
    prompted = make_prompted("hybrid")
    template = template_of(prompted.recipe, prompted.vocab, None)
    assert not template.is_causal
    assert template.pooling == "mean"


def test_its_samples_are_fillings_and_continuations(make_prompted: Make) -> None:
    prompted = make_prompted("hybrid")
    rows = rows_of(prompted.tokenizer, SENTENCE, SENTENCE)
    shown = samples(prompted.model, prompted.recipe, prompted.tokenizer, rows, prompted.device)
    assert ["[MASK]" in sample["prompt"] for sample in shown] == [True, False]


def test_a_masked_model_alone_still_generates_nothing(make_prompted: Make) -> None:
    with pytest.raises(UserError, match="foreword fill"):
        generate(make_prompted("encoder"), ["The cat"], Sampling())
