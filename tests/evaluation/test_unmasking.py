"""Models of masked diffusion as writers: their sampler, their blanks and their scores."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from foreword.errors import UserError
from foreword.evaluation import beam
from foreword.evaluation.beam import Beams
from foreword.evaluation.decoding import decode, generate, starts_of, stops_of
from foreword.evaluation.filling import fill
from foreword.evaluation.samples import samples
from foreword.evaluation.sampling import Sampling
from foreword.evaluation.scoring import BOUND, score
from foreword.objectives.diffusion import Diffusion
from foreword.runs.trained_model import TrainedModel
from foreword.types import Array
from tests.evaluation.conftest import TEXTS, Make
from tests.evaluation.test_filling import SENTENCE, rows_of, train
from tests.objectives.test_diffusion import exact, log_probs, of_subsets

PROMPTS = ["The cat", "A bird sang in the tree", "The dog"]


def order_of(prompted: TrainedModel, prompt: str, sampling: Sampling) -> Array:
    starts, stops = starts_of(prompted, [prompt]), stops_of(prompted)
    [new] = decode(prompted, starts, sampling, stops, min_tokens=sampling.tokens)
    assert (len(new.ids), new.stopped) == (sampling.tokens, "tokens")
    assert new.filled_at is not None
    return new.filled_at


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_text_is_the_same_again_and_in_any_batch(make_prompted: Make, temperature: float) -> None:
    prompted = make_prompted("diffusion")
    sampling = Sampling(tokens=10, temperature=temperature, block=4, seed=3)
    many = generate(prompted, PROMPTS, sampling, samples=2)
    assert many == generate(prompted, PROMPTS, sampling, samples=2)
    alone = [generate(prompted, [prompt], sampling, samples=2) for prompt in PROMPTS]
    assert many == [text for texts in alone for text in texts]
    assert (many[0].text == many[1].text) == (temperature == 0)


def test_blocks_are_filled_in_turn_and_in_as_many_steps_as_asked(make_prompted: Make) -> None:
    prompted = make_prompted("diffusion")
    one_each = order_of(prompted, "The cat", Sampling(tokens=12, temperature=0, block=4))
    assert [sorted(one_each[n : n + 4]) for n in (0, 4, 8)] == [
        [n + 1, n + 2, n + 3, n + 4] for n in (0, 4, 8)
    ]
    assert list(one_each) != sorted(one_each)  # within a block the surest is first
    few = order_of(prompted, "The cat", Sampling(tokens=12, temperature=0, block=12, steps=3))
    assert np.bincount(few)[1:].tolist() == [4, 4, 4]


def test_at_each_step_the_likeliest_token_of_the_surest_position_stays(make_prompted: Make) -> None:
    prompted = make_prompted("diffusion")
    mask, ids = prompted.vocab.id("[MASK]"), prompted.tokenizer.encode("The cat")
    starts, greedy = starts_of(prompted, ["The cat"]), Sampling(tokens=3, temperature=0)
    [new] = decode(prompted, starts, greedy, stops_of(prompted), min_tokens=3)
    text = np.concatenate([prompted.bos, ids, [mask] * 3])
    begin = len(text) - 3
    for _ in range(3):
        scores = log_probs(prompted.model, text[None])[0]
        scores[:, prompted.vocab.is_special] = -np.inf
        scores -= np.log(np.exp(scores).sum(-1, keepdims=True))
        scores[text != mask] = -np.inf
        at, token = np.unravel_index(scores.argmax(), scores.shape)
        text[at] = token
    assert new.ids.tolist() == text[begin:].tolist()


def test_texts_longer_than_a_row_go_on_from_their_end(make_prompted: Make) -> None:
    prompted = make_prompted("diffusion", length=16)
    assert len(order_of(prompted, TEXTS[0], Sampling(tokens=40, block=8))) == 40


@pytest.mark.full
def test_it_writes_and_ends_what_it_was_trained_on(make_prompted: Make) -> None:
    prompted = make_prompted("diffusion", objective=Diffusion(end="[SEP]"))
    train(prompted, SENTENCE)
    [text] = generate(prompted, ["The cat"], Sampling(tokens=12, temperature=0), with_steps=True)
    assert (text.text, text.stopped) == (" sat on the mat.", "end")
    assert len(text.steps) == text.tokens
    assert text.steps[-1] == text.text.strip()
    filled = fill(prompted, "The [MASK] [MASK] [MASK] the [MASK].", top=2)
    assert filled.text == "The «cat» «sat» «on» the «mat»."
    assert sorted(filled.order) == [1, 2, 3, 4]


def test_each_blank_is_filled_given_those_before(make_prompted: Make) -> None:
    prompted = make_prompted("diffusion")
    filled = fill(prompted, "The [MASK] sat on the [MASK].", top=3)
    first, second = filled.order
    assert filled.blanks[first - 1][0].probability >= max(
        candidate.probability
        for candidate in fill(prompted, "The [MASK] sat on the [MASK].").blanks[first - 1]
    )
    parts = ["The ", " sat on the ", "."]
    given = [filled.blanks[first - 1][0].text if n == first else "[MASK]" for n in (1, 2)]
    text = parts[0] + given[0] + parts[1] + given[1] + parts[2]
    assert fill(prompted, text, top=3).blanks[0] == filled.blanks[second - 1]


def test_what_only_other_models_do_is_refused_in_a_line(
    make_prompted: Make,
) -> None:
    prompted = make_prompted("diffusion")
    with pytest.raises(UserError, match="a sentinel is a blank of any length"):
        fill(prompted, "The <extra_id_0> sat.")
    with pytest.raises(UserError, match="writes in any order, not by beams"):
        beam.generate(prompted, ["The"], Beams(2))
    for settings in ({"steps": 4}, {"block": 8}, {}):
        with pytest.raises(UserError, match=r"a token a step, .*; models that can: masked diff"):
            sampling = Sampling(**settings)
            generate(make_prompted("decoder"), ["The"], sampling, with_steps=not settings)


def test_scores_are_the_bound_that_training_measures(make_prompted: Make) -> None:
    """A text of few tokens, whose bound and likelihood can be enumerated."""
    prompted = make_prompted("diffusion")
    prompted = replace(
        prompted, recipe=replace(prompted.recipe, packing=replace(prompted.recipe.packing, bos=""))
    )
    text = prompted.tokenizer.encode("The cat sat on")
    nll, bound = exact(of_subsets(prompted.model, text))
    scored = score(prompted, "The cat sat on")
    assert scored.totals.measure == BOUND
    assert scored.totals.is_bound
    assert scored.totals.nats == pytest.approx(bound, rel=0.05)
    assert scored.totals.nats == pytest.approx(-scored.log_probs.sum())
    assert scored.totals.nats > nll


def test_a_long_text_is_scored_in_windows_once_a_token(make_prompted: Make) -> None:
    prompted = make_prompted("diffusion", length=16)
    scored = score(prompted, " ".join(TEXTS))
    assert len(scored.log_probs) == scored.totals.tokens
    assert (scored.log_probs < 0).all()


def test_samples_of_training_fill_and_continue(make_prompted: Make) -> None:
    prompted = make_prompted("diffusion")
    rows = rows_of(prompted.tokenizer, *TEXTS[:3])
    made = samples(prompted.model, prompted.recipe, prompted.tokenizer, rows, prompted.device)
    assert ["«" in sample["text"] for sample in made] == [True, False, True]
