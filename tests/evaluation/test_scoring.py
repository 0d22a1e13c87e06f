from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch

from foreword.errors import UserError
from foreword.evaluation.perplexity import ScoreTotals, scoring_windows
from foreword.evaluation.scorer import ScoringItem, scorer_of
from foreword.evaluation.scoring import PSEUDO, first_context, score, score_texts
from foreword.nn.masks import CausalMask, FullMask
from foreword.runs.trained_model import TrainedModel
from foreword.text.tokenizer import Tokenizer
from foreword.types import Array, Batch
from tests.evaluation.conftest import FAMILIES, Make

LONG = "The cat sat on the mat. The dog ran to the river, and the sun shone on the bird. " * 3


def reference_log_probs(prompted: TrainedModel, ids: Array, mask: object) -> Array:
    """Return the log-probabilities at every position of one row, (length, vocab)."""
    batch = Batch(ids[None], np.arange(len(ids))[None], mask)
    return prompted.logits(prompted.run_backbone(batch).states[0]).log_softmax(-1).numpy()


@pytest.mark.parametrize("both_sides", [False, True])
@pytest.mark.parametrize(("width", "stride"), [(8, 4), (8, 8), (8, 1), (5, 3), (1, 1)])
def test_windows_score_each_token_once(width: int, stride: int, both_sides: bool) -> None:
    for length in range(40):
        scored = []
        windows = scoring_windows(length, width, stride, both_sides=both_sides)
        for n, span in enumerate(windows):
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


@pytest.mark.parametrize("length", [8, 1])
def test_a_stride_of_a_whole_row_scores_every_token(make_prompted: Make, length: int) -> None:
    """Each window reads a row and predicts the tokens after its own, as in training."""
    prompted = make_prompted("decoder", length=length)
    scored = score(prompted, LONG, stride=prompted.max_context)
    text = prompted.tokenizer.encode(LONG)
    whole = np.concatenate([prompted.prompt_prefix, text, prompted.eos])
    assert list(scored.tokens) == [prompted.tokenizer.token(int(i)) for i in whole[1:]]
    for start in range(0, len(whole) - 1 - length, length):
        table = reference_log_probs(prompted, whole[start : start + length], CausalMask())
        expected = table[np.arange(length), whole[start + 1 : start + length + 1]]
        np.testing.assert_allclose(scored.log_probs[start : start + length], expected, atol=1e-5)


def test_causal_scores_equal_those_of_one_forward_pass(make_prompted: Make) -> None:
    prompted = make_prompted("decoder")
    scored = score(prompted, "The cat sat on the mat.")
    text = prompted.tokenizer.encode("The cat sat on the mat.")
    ids = np.concatenate([prompted.prompt_prefix, text, prompted.eos])
    table = reference_log_probs(prompted, ids, CausalMask())
    expected = table[np.arange(len(ids) - 1), ids[1:]]
    np.testing.assert_allclose(scored.log_probs, expected, atol=1e-5)
    assert scored.tokens == ("The", "cat", "sat", "on", "the", "mat", ".", "</s>")
    assert scored.totals.ends == 1
    assert scored.totals.nats == pytest.approx(-expected.sum(), abs=1e-4)
    assert scored.totals.perplexity == pytest.approx(math.exp(-expected.mean()), rel=1e-4)
    assert scored.totals.bits_per_byte == pytest.approx(
        -expected.sum() / math.log(2) / 23, rel=1e-4
    )


def test_a_long_text_is_scored_in_windows(make_prompted: Make) -> None:
    prompted = make_prompted("decoder", "rotary", length=16)
    scored = score(prompted, LONG, stride=4)
    ids = np.concatenate([prompted.prompt_prefix, prompted.tokenizer.encode(LONG), prompted.eos])
    assert len(scored.log_probs) == len(ids) - 1 > 40
    # Token n is scored in the first window, at a multiple of 4, that it is in.
    for position in (1, 15, 16, 30, len(ids) - 1):
        last = position - 1  # of the tokens that it is predicted from
        start = 0 if last < 16 else min(4 * -(-(last - 15) // 4), len(ids) - 1 - 16)
        window = ids[start : start + 16]
        table = reference_log_probs(prompted, window, CausalMask())
        expected = table[last - start, ids[position]]
        assert scored.log_probs[position - 1] == pytest.approx(expected, abs=1e-5)


def test_pseudo_log_likelihood_masks_each_token_in_turn(make_prompted: Make) -> None:
    prompted = make_prompted("encoder")
    text = "The cat sat on the mat."
    scored = score(prompted, text)
    ids = prompted.with_bos_and_eos(prompted.tokenizer.encode(text))
    expected = []
    for position in range(1, len(ids) - 1):
        masked = ids.copy()
        masked[position] = prompted.vocab.id("[MASK]")
        expected.append(reference_log_probs(prompted, masked, FullMask())[position, ids[position]])
    np.testing.assert_allclose(scored.log_probs, expected, atol=1e-5)
    assert scored.totals.measure == PSEUDO
    assert scored.totals.tokens == 7


def test_texts_without_tokens_have_empty_sums_in_order(make_prompted: Make) -> None:
    prompted = make_prompted("encoder")
    scored = list(score_texts(prompted, ["", "The cat", "", ""]))
    assert [totals.tokens for totals in scored] == [0, 2, 0, 0]
    with pytest.raises(UserError, match="no token"):
        score(prompted, "")


@pytest.mark.parametrize(
    "family", ["prefix", "span_decoder", "encoder_decoder", "goes_on", "deshuffles", "mixture"]
)
def test_an_answer_is_scored_given_its_source(make_prompted: Make, family: str) -> None:
    prompted = make_prompted(family, "rotary")
    scored = score(prompted, "The cat", source="A bird sang")
    assert scored.tokens == ("The", "cat", "</s>")
    assert len(scored.log_probs) == 3, "the end is scored"
    assert scored.totals.ends == 1
    other = score(prompted, "The cat", source="The sun")
    assert abs(scored.log_probs - other.log_probs).max() > 1e-3
    # Chain rule: the first token's score does not depend on the second.
    longer = score(prompted, "The dog", source="A bird sang")
    assert scored.log_probs[0] == pytest.approx(longer.log_probs[0], abs=1e-5)
    with pytest.raises(UserError, match="--source"):
        score(prompted, "The cat")


def test_sources_of_different_lengths_do_not_affect_each_other(make_prompted: Make) -> None:
    prompted = make_prompted("prefix", "rotary")
    encode = prompted.tokenizer.encode
    target = encode("The cat")
    sources = [encode(text) for text in ("A bird sang", "The dog", "A bird sang in the tree")]
    items = [ScoringItem(target, np.ones(2, dtype=bool), source) for source in sources]
    for together, item in zip(scorer_of(prompted).log_probs(items), items, strict=True):
        np.testing.assert_allclose(together, next(scorer_of(prompted).log_probs([item])), atol=1e-5)


def test_a_source_is_refused_by_a_causal_model(make_prompted: Make) -> None:
    with pytest.raises(UserError, match="no source"):
        score(make_prompted("decoder"), "The cat", source="A bird")


def test_no_end_is_scored_without_an_eos(make_prompted: Make) -> None:
    prompted = make_prompted("decoder")
    packing = dataclasses.replace(prompted.recipe.packing, eos="")
    open_ended = dataclasses.replace(
        prompted, recipe=dataclasses.replace(prompted.recipe, packing=packing)
    )
    whole, scored = score(prompted, "The cat sat"), score(open_ended, "The cat sat")
    assert (scored.totals.tokens, scored.totals.ends) == (3, 0)
    assert scored.log_probs.tolist() == pytest.approx(whole.log_probs[:-1].tolist(), abs=1e-6)
    assert scored.totals.bytes == whole.totals.bytes


@pytest.mark.parametrize(
    ("family", "has_begin"), [*((f, True) for f in FAMILIES), ("decoder", False)]
)
def test_texts_of_no_and_of_one_token_have_a_score_or_are_refused(
    family: str, has_begin: bool, bpe: Tokenizer, make_prompted: Make
) -> None:
    prompted = make_prompted(family, text=bpe)
    if not has_begin:
        packing = dataclasses.replace(prompted.recipe.packing, bos="", eos="")
        recipe = dataclasses.replace(prompted.recipe, packing=packing)
        prompted = dataclasses.replace(prompted, recipe=recipe)
    source = "The cat" if prompted.answers else None
    given = first_context(prompted)
    assert (given == "nothing, so it is not scored") == (not has_begin)
    for text in ("", " ", "a", "\N{GRINNING FACE}", "a cat"):
        count = len(bpe.encode(text)) + len(prompted.end_token if source else prompted.eos)
        count -= len(prompted.eos) if prompted.fills_in_place and not prompted.continues else 0
        count -= not has_begin
        if count <= 0:
            with pytest.raises(UserError, match="no token that can be scored"):
                score(prompted, text, source)
            continue
        scored = score(prompted, text, source)
        assert len(scored.log_probs) == count and np.isfinite(scored.totals.perplexity)
        assert scored.totals.unscored == int(not has_begin)


def test_unknown_tokens_are_counted(make_prompted: Make) -> None:
    totals = score(make_prompted("decoder"), "The zebra sat on the xylophone.").totals
    assert totals.unknown == 2


def test_totals_are_the_sums_of_tokens() -> None:
    both = ScoreTotals("m", 2.0, 2, 5, 1, ends=1) + ScoreTotals(
        "m", 4.0, 1, 7, 1, unscored=1, ends=1
    )
    assert both == ScoreTotals("m", 6.0, 3, 12, 2, unscored=1, ends=2)
    assert both.loss == 2.0
    assert both.bits_per_byte == pytest.approx(6 / math.log(2) / 12)


def test_scoring_keeps_the_random_state(make_prompted: Make) -> None:
    prompted = make_prompted("encoder")
    before = torch.random.get_rng_state()
    score(prompted, "The cat sat on the mat.")
    assert torch.equal(before, torch.random.get_rng_state())


def test_progress_is_told_within_a_long_text(make_prompted: Make) -> None:
    told: list[tuple[int, float]] = []
    prompted = make_prompted("encoder")
    (totals,) = score_texts(
        prompted, ["the cat sat"], progress=lambda tokens, share: told.append((tokens, share))
    )
    tokens = list(range(1, totals.tokens + 1))
    assert [number for number, _ in told] == tokens
    assert [share for _, share in told] == pytest.approx([n / totals.tokens for n in tokens])
