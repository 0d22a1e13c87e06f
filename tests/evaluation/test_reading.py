"""What models expect at each token: against their scores, and layer by layer."""

from __future__ import annotations

import numpy as np
import pytest

from foreword.errors import TooLongError, UserError
from foreword.evaluation import scoring
from foreword.evaluation.reading import read
from tests.evaluation.conftest import Make

TEXT = "The cat looked at the bird."
LENSES = ["decoder", "encoder", "span_decoder", "encoder_decoder", "hybrid", "diffusion"]


@pytest.mark.parametrize(
    "family", ["decoder", "encoder", "prefix", "encoder_decoder", "stream", "xlnet", "hybrid"]
)
def test_each_token_has_the_log_probability_of_score(make_prompted: Make, family: str) -> None:
    model = make_prompted(family)
    source = "A bird." if model.answers else None
    expected, reading = scoring.score(model, TEXT, source), read(model, TEXT, 3, source)
    scored = [token for token in reading.tokens if token.layers]
    np.testing.assert_allclose([t.layers[-1].nats for t in scored], expected.log_probs, atol=1e-6)
    assert reading.totals.nats == pytest.approx(expected.totals.nats)
    for token in scored:
        (last,) = token.layers
        nats = [value for _, value in last.best]
        assert len(nats) == 3 and nats == sorted(nats, reverse=True)
        if last.rank < 3:
            assert last.best[last.rank] == pytest.approx((token.id, last.nats))
    words = [TEXT[token.start : token.stop].strip() for token in reading.tokens]
    assert "".join(words) == TEXT.replace(" ", "")


@pytest.mark.parametrize("family", LENSES)
def test_the_last_layer_of_the_lens_is_the_model(make_prompted: Make, family: str) -> None:
    model = make_prompted(family)
    last, layers = read(model, TEXT, 4), read(model, TEXT, 4, by_layer=True)
    for one, many in zip(last.tokens, layers.tokens, strict=True):
        assert one.layers[-1:] == many.layers[-1:]
        if many.layers:
            assert len(many.layers) == 3 and many.layers[0] != many.layers[-1]  # two layers


def test_a_model_of_spans_reads_each_token_in_a_blank(make_prompted: Make) -> None:
    model = make_prompted("encoder_decoder")
    reading, ids = read(model, TEXT), model.tokenizer.encode(TEXT)
    assert [token.id for token in reading.tokens] == ids.tolist()
    name = model.tokenizer.token(int(model.vocab.sentinels[0]))
    scored = scoring.score(model, f"{name} looked", f"The cat {name} at the bird.")
    assert reading.totals.is_pseudo and reading.totals.bits_per_byte is None
    assert reading.tokens[2].layers[-1].nats == pytest.approx(scored.log_probs[1], abs=1e-5)


def test_a_model_of_masked_diffusion_reads_each_token_alone_masked(make_prompted: Make) -> None:
    model = make_prompted("diffusion")
    reading, ids = read(model, TEXT), model.tokenizer.encode(TEXT)
    assert [token.id for token in reading.tokens] == ids.tolist()
    plan = scoring.plan_masked(model, TEXT, ids, 8)
    expected = np.concatenate(list(scoring.scorer_of(model).log_probs(plan.items)))
    nats = [token.layers[-1].nats for token in reading.tokens]
    np.testing.assert_allclose(nats, expected, atol=1e-5)
    assert reading.totals.is_pseudo and reading.totals.bits_per_byte is None


def test_a_detector_says_what_is_genuine(make_prompted: Make) -> None:
    reading = read(make_prompted("electra"), TEXT)
    assert all(token.layers[0].nats < 0 and not token.layers[0].best for token in reading.tokens)


def test_what_cannot_be_read_is_refused(make_prompted: Make) -> None:
    with pytest.raises(TooLongError, match="text: has 5 tokens; at most 3"):
        read(make_prompted("decoder"), "The cat sat on the", most=3)
    with pytest.raises(UserError, match="has no layers that its head could read"):
        read(make_prompted("xlnet"), TEXT, by_layer=True)
    with pytest.raises(UserError, match="text: has no token"):
        read(make_prompted("encoder"), "")
