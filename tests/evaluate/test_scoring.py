from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch

from foreword.errors import UserError
from foreword.evaluate import scorer
from foreword.evaluate.perplexity import ScoreTotals, scoring_windows
from foreword.evaluate.prompting import PromptedModel
from foreword.evaluate.scorer import NeuralScorer, ScoringItem, scorer_of
from foreword.evaluate.scoring import PSEUDO, score, score_texts
from foreword.nn.masks import CausalMask, FullMask
from foreword.types import Array, Batch

LONG = "The cat sat on the mat. The dog ran to the river, and the sun shone on the bird. " * 3


def by_hand(prompted: PromptedModel, ids: Array, mask: object) -> Array:
    """Log-probabilities at every place of one row, (length, vocab)."""
    batch = Batch(ids[None], np.arange(len(ids))[None], mask)
    return prompted.logits(prompted.run_backbone(batch).states[0]).log_softmax(-1).numpy()


@pytest.mark.parametrize("both_sides", [False, True])
@pytest.mark.parametrize(("width", "stride"), [(8, 4), (8, 8), (8, 1), (5, 3), (1, 1)])
def test_windows_score_each_token_once(width: int, stride: int, both_sides: bool) -> None:
    for length in range(40):
        scored = []
        found = scoring_windows(length, width, stride, both_sides=both_sides)
        for n, span in enumerate(found):
            scored += range(span.first, span.stop)
            assert span.start <= span.first <= span.stop <= min(span.start + width, length)
            context = span.first - span.start
            if n and not both_sides:
                assert context >= width - stride
            if n and both_sides:
                assert context >= (width - stride) // 2
        assert scored == list(range(length))


def test_a_stride_beyond_the_window_is_refused() -> None:
    with pytest.raises(UserError, match="stride"):
        scoring_windows(20, 8, 9, both_sides=False)


def test_causal_scores_are_those_of_the_plain_model(
    make_prompted: Callable[..., PromptedModel],
) -> None:
    prompted = make_prompted("decoder")
    found = score(prompted, "The cat sat on the mat.")
    text = prompted.tokenizer.encode("The cat sat on the mat.")
    ids = np.concatenate([prompted.opening, text, prompted.eos])
    table = by_hand(prompted, ids, CausalMask())
    wanted = table[np.arange(len(ids) - 1), ids[1:]]
    np.testing.assert_allclose(found.log_probs, wanted, atol=1e-5)
    assert found.tokens == ("The", "cat", "sat", "on", "the", "mat", ".", "</s>")
    assert found.totals.ends == 1
    assert found.totals.nats == pytest.approx(-wanted.sum(), abs=1e-4)
    assert found.totals.perplexity == pytest.approx(math.exp(-wanted.mean()), rel=1e-4)
    assert found.totals.bits_per_byte == pytest.approx(-wanted.sum() / math.log(2) / 23, rel=1e-4)


def test_a_long_text_is_scored_in_windows(make_prompted: Callable[..., PromptedModel]) -> None:
    prompted = make_prompted("decoder", "rotary", length=16)
    found = score(prompted, LONG, stride=4)
    ids = np.concatenate([prompted.opening, prompted.tokenizer.encode(LONG), prompted.eos])
    assert len(found.log_probs) == len(ids) - 1 > 40
    # Token 30 is scored in the window that begins at the multiple of 4 that leaves it last but few.
    for place in (1, 15, 16, 30, len(ids) - 1):
        start = 0 if place < 16 else min(4 * -(-(place - 15) // 4), len(ids) - 16)
        window = ids[start : start + 16]
        table = by_hand(prompted, window, CausalMask())
        wanted = table[place - start - 1, ids[place]]
        assert found.log_probs[place - 1] == pytest.approx(wanted, abs=1e-5)


def test_pseudo_log_likelihood_hides_each_token_in_turn(
    make_prompted: Callable[..., PromptedModel],
) -> None:
    prompted = make_prompted("encoder")
    text = "The cat sat on the mat."
    found = score(prompted, text)
    ids = prompted.with_bos_and_eos(prompted.tokenizer.encode(text))
    wanted = []
    for place in range(1, len(ids) - 1):
        hidden = ids.copy()
        hidden[place] = prompted.vocab.id("[MASK]")
        wanted.append(by_hand(prompted, hidden, FullMask())[place, ids[place]])
    np.testing.assert_allclose(found.log_probs, wanted, atol=1e-5)
    assert found.totals.measure == PSEUDO
    assert found.totals.tokens == 7


@pytest.mark.parametrize("family", ["encoder", "decoder"])
def test_texts_together_are_texts_alone(
    make_prompted: Callable[..., PromptedModel], family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompted = make_prompted(family, "t5_bias", length=16)
    texts = ["The cat sat.", LONG, "A bird", "The dog ran to the river.", "One"]
    alone = [score(prompted, text).totals for text in texts]
    monkeypatch.setattr(scorer, "CHUNK", 7)
    together = list(score_texts(prompted, texts))
    for one, other in zip(alone, together, strict=True):
        assert other.nats == pytest.approx(one.nats, abs=1e-4)
        assert (other.tokens, other.bytes) == (one.tokens, one.bytes)


def test_texts_without_tokens_keep_their_place(make_prompted: Callable[..., PromptedModel]) -> None:
    prompted = make_prompted("encoder")
    found = list(score_texts(prompted, ["", "The cat", "", ""]))
    assert [totals.tokens for totals in found] == [0, 2, 0, 0]
    with pytest.raises(UserError, match="no token"):
        score(prompted, "")


@pytest.mark.parametrize("family", ["prefix", "span_decoder", "encoder_decoder"])
def test_an_answer_is_scored_given_its_source(
    make_prompted: Callable[..., PromptedModel], family: str
) -> None:
    prompted = make_prompted(family, "rotary")
    found = score(prompted, "The cat", source="A bird sang")
    assert len(found.log_probs) == 3, "the closing token counts"
    assert found.totals.ends == 1
    other = score(prompted, "The cat", source="The sun")
    assert abs(found.log_probs - other.log_probs).max() > 1e-3
    # Chain rule: the first token's score does not depend on the second.
    longer = score(prompted, "The dog", source="A bird sang")
    assert found.log_probs[0] == pytest.approx(longer.log_probs[0], abs=1e-5)
    with pytest.raises(UserError, match="--source"):
        score(prompted, "The cat")


def test_sources_of_several_lengths_in_one_batch(
    make_prompted: Callable[..., PromptedModel],
) -> None:
    prompted = make_prompted("prefix", "rotary")
    encode = prompted.tokenizer.encode
    target = encode("The cat")
    sources = [encode(text) for text in ("A bird sang", "The dog", "A bird sang in the tree")]
    items = [ScoringItem(target, np.ones(2, dtype=bool), source) for source in sources]
    for together, item in zip(scorer_of(prompted).log_probs(items), items, strict=True):
        np.testing.assert_allclose(together, next(scorer_of(prompted).log_probs([item])), atol=1e-5)


def test_a_causal_model_reads_no_source(make_prompted: Callable[..., PromptedModel]) -> None:
    with pytest.raises(UserError, match="no source"):
        score(make_prompted("decoder"), "The cat", source="A bird")


def test_without_a_token_that_ends_texts_none_is_scored(
    make_prompted: Callable[..., PromptedModel],
) -> None:
    prompted = make_prompted("decoder")
    packing = dataclasses.replace(prompted.recipe.packing, eos="")
    open_ended = dataclasses.replace(
        prompted, recipe=dataclasses.replace(prompted.recipe, packing=packing)
    )
    whole, found = score(prompted, "The cat sat"), score(open_ended, "The cat sat")
    assert (found.totals.tokens, found.totals.ends) == (3, 0)
    assert found.log_probs.tolist() == pytest.approx(whole.log_probs[:-1].tolist(), abs=1e-6)
    assert found.totals.bytes == whole.totals.bytes


def test_unknown_tokens_are_counted(make_prompted: Callable[..., PromptedModel]) -> None:
    totals = score(make_prompted("decoder"), "The zebra sat on the xylophone.").totals
    assert totals.unknown == 2


def test_totals_add_up() -> None:
    both = ScoreTotals("m", 2.0, 2, 5, 1, ends=1) + ScoreTotals(
        "m", 4.0, 1, 7, 1, unscored=1, ends=1
    )
    assert both == ScoreTotals("m", 6.0, 3, 12, 2, unscored=1, ends=2)
    assert both.loss == 2.0
    assert both.bits_per_byte == pytest.approx(6 / math.log(2) / 12)


def test_scorer_is_the_model_on_plain_ids(make_prompted: Callable[..., PromptedModel]) -> None:
    prompted = make_prompted("decoder")
    ids = prompted.tokenizer.encode("The cat sat on the mat")
    table = by_hand(prompted, ids, CausalMask())
    assert isinstance(scorer_of(prompted), NeuralScorer)
    (found,) = scorer_of(prompted).log_probs([ScoringItem(ids, np.arange(len(ids)) > 0)])
    np.testing.assert_allclose(found, table[np.arange(5), ids[1:]], atol=1e-5)


def test_scoring_leaves_random_numbers_alone(make_prompted: Callable[..., PromptedModel]) -> None:
    prompted = make_prompted("encoder")
    before = torch.random.get_rng_state()
    score(prompted, "The cat sat on the mat.")
    assert torch.equal(before, torch.random.get_rng_state())
