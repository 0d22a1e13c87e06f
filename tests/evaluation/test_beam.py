"""Beam search against greedy decoding and against an exhaustive search."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch

from foreword.errors import UserError
from foreword.evaluation import beam, decoding
from foreword.evaluation.beam import Beams
from foreword.evaluation.decoding import decode, stops_of
from foreword.evaluation.sampling import Sampling
from foreword.evaluation.starts import GeneratedTokens, Start, unpadded_rows
from foreword.nn.init import initialise
from foreword.runs.recipe import Recipe
from foreword.runs.trained_model import TrainedModel
from foreword.settings import config
from foreword.text.tokenizer import Tokenizer
from foreword.types import Array, Example
from tests.evaluation.conftest import Make

TEXTS = ["the cat sat on the mat", "a bird sang", "one day the sun shone on the mat"]
MakeModel = Callable[[str], TrainedModel]


@pytest.fixture
def make(make_prompted: Make, tokenizer: Tokenizer) -> MakeModel:
    """Make a model with random weights, by its family."""

    def recurrent(table: dict[str, object]) -> TrainedModel:
        recipe = config.build(Recipe, {"description": "tiny", "tokenizer": "word", **table})
        model = recipe.build(tokenizer.vocab)
        initialise(model, 1)
        return TrainedModel(model.eval(), recipe, tokenizer, torch.device("cpu"))

    def made(family: str) -> TrainedModel:
        sizes = {"d_model": 16, "layers": 2, "init": "uniform", "init_std": 1.0}
        if family == "lstm":
            packing = {"kind": "stream", "length": 32}
            table = {"model": {"kind": "lstm", **sizes}, "objective": "causal", "layout": "decoder"}
            return recurrent({**table, "packing": packing})
        if family.startswith("seq2seq"):
            feeds = {"input_feeding": family.endswith("feeds")}
            return recurrent(
                {
                    "model": {"kind": "seq2seq", **sizes, **feeds},
                    "objective": "translate",
                    "layout": {"kind": "encoder_decoder", "start": "<s>"},
                    "packing": {"kind": "parallel", "length": 32},
                }
            )
        return make_prompted(family)

    return made


every_family = pytest.mark.parametrize(
    "family", ["decoder", "transformer_xl", "lstm", "goes_on", "placed", "seq2seq", "seq2seq_feeds"]
)


def assert_equal(one: GeneratedTokens, other: GeneratedTokens) -> None:
    assert one.ids.tolist() == other.ids.tolist()
    assert one.stopped == other.stopped
    assert one.log_probs is not None and other.log_probs is not None
    np.testing.assert_allclose(one.log_probs, other.log_probs, atol=1e-5)


@pytest.mark.product(few=3)
@every_family
def test_one_beam_equals_greedy_decoding(make: MakeModel, family: str) -> None:
    prompted = make(family)
    starts, stops = decoding.starts_of(prompted, TEXTS), stops_of(prompted)
    greedy = decode(prompted, starts, Sampling(tokens=12, temperature=0.0), stops, scores=True)
    for penalty in (0.0, 1.0):
        hypotheses = beam.search(prompted, starts, Beams(1, penalty, tokens=12), stops)
        for one, best in zip(greedy, hypotheses, strict=True):
            assert len(best) == 1
            assert_equal(best[0], one)


def log_probs_of(prompted: TrainedModel, start: Start, texts: list[Array]) -> Array:
    """Return the log-probability of each token of equally long texts after a start, in one pass."""
    rows = [np.concatenate([start.target, text]) for text in texts]
    target = unpadded_rows(np.stack(rows))
    weights = np.zeros(target.ids.shape, np.float32)
    weights[:, len(start.target) :] = 1
    sources = np.tile(start.source, (len(texts), 1)) if start.source is not None else None
    source = None if sources is None else unpadded_rows(sources)
    batch = prompted.recipe.layout.arrange(Example(source, target, weights), prompted.vocab)
    logits = prompted.logits(prompted.run_backbone(batch).states).double().log_softmax(-1).numpy()
    at = batch.weights > 0
    chosen = np.take_along_axis(logits, batch.targets[..., None], 2)[..., 0]
    return np.asarray(chosen[at].reshape(len(texts), -1))


def all_texts(prompted: TrainedModel, start: Start, tokens: int) -> list[tuple[list[int], Array]]:
    """Return all texts of at most `tokens` tokens, ended or not, with their log-probabilities."""
    vocab, stops = prompted.vocab, stops_of(prompted)
    words = np.flatnonzero(~vocab.is_special)
    every: list[tuple[list[int], Array]] = []
    for length in range(1, tokens + 1):
        last = [*stops, *words] if length == tokens else stops
        texts = [np.array(text) for text in product(*[words] * (length - 1), last)]
        nats = log_probs_of(prompted, start, texts)
        every += [
            (text[~np.isin(text, stops)].tolist(), row)
            for text, row in zip(texts, nats, strict=True)
        ]
    return every


@pytest.mark.product
@pytest.mark.parametrize("penalty", [0.0, 1.0])
@pytest.mark.parametrize("family", ["decoder", "goes_on", "seq2seq", "seq2seq_feeds"])
def test_enough_beams_find_the_likeliest_of_all_texts(
    make: MakeModel, family: str, penalty: float
) -> None:
    prompted = make(family)
    start = decoding.starts_of(prompted, TEXTS[1:2])[0]
    beams = Beams(64, penalty, tokens=2)  # more than words in the vocabulary
    hypotheses = beam.search(prompted, [start], beams, stops_of(prompted))[0]
    every = all_texts(prompted, start, 2)
    every.sort(key=lambda one: -one[1].sum() / len(one[1]) ** penalty)
    assert len(every) > 900
    assert len(hypotheses) == 64
    for one, (ids, nats) in zip(hypotheses[:20], every, strict=False):
        assert one.ids.tolist() == ids
        np.testing.assert_allclose(one.log_probs, nats, atol=1e-5)


@pytest.mark.product(few=3)
@every_family
def test_a_start_gives_the_same_texts_alone_and_among_others(make: MakeModel, family: str) -> None:
    prompted = make(family)
    starts, stops = decoding.starts_of(prompted, [*TEXTS, *TEXTS[:1]]), stops_of(prompted)
    beams = Beams(3, tokens=8)
    together = beam.search(prompted, starts, beams, stops)
    for start, best in zip(starts, together, strict=True):
        alone = beam.search(prompted, [start], beams, stops)[0]
        assert len(best) == len(alone) == 3
        for one, other in zip(best, alone, strict=True):
            assert_equal(one, other)
        scores = [beams.score(one) for one in best]
        assert scores == sorted(scores, reverse=True)


def test_search_stops_at_the_last_position(make: MakeModel) -> None:
    prompted = make("decoder")
    long = replace(decoding.starts_of(prompted, TEXTS[:1])[0], target=np.full(60, 110))
    hypotheses = beam.search(prompted, [long], Beams(2, tokens=50), np.array([3]))[0]
    assert {one.stopped for one in hypotheses} <= {"length", "end"}
    assert max(len(one.ids) for one in hypotheses) <= 5


def test_generate_returns_several_texts_for_each_prompt(make: MakeModel) -> None:
    prompted = make("seq2seq")
    generated = beam.generate(prompted, TEXTS[:2], Beams(4, tokens=6), samples=2)
    assert [one.prompt for one in generated] == [TEXTS[0]] * 2 + [TEXTS[1]] * 2
    assert generated[0].text != generated[1].text


def test_more_samples_than_beams_are_refused(make: MakeModel) -> None:
    with pytest.raises(UserError, match="--samples: 2 beams give 1 to 2 texts, got 3"):
        beam.generate(make("decoder"), TEXTS[:1], Beams(2), samples=3)
