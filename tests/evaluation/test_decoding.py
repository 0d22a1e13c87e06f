"""Decoding against a forward pass per token, sampling, stops, and refusals."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.utils._pytree import tree_leaves

from foreword.errors import UserError
from foreword.evaluation import decoder
from foreword.evaluation.continuation import Continuation
from foreword.evaluation.decoder import Decoder, TextLimits
from foreword.evaluation.decoding import decode, generate, stops_of
from foreword.evaluation.drafts import Drafts
from foreword.evaluation.sampling import GREEDY, Sampling, distribution, sample_tokens
from foreword.evaluation.starts import Start, next_token_batch
from foreword.runs.trained_model import TrainedModel
from foreword.settings import kinds
from foreword.text.tokenizer import Tokenizer
from foreword.types import Array, Batch, Example, Tokens
from tests.evaluation.conftest import Make

DECODERS = ("decoder", "pairs", "delta", "delta_dense", "prefix", "span_decoder", "encoder_decoder")


def tokens(ids: Array) -> Tokens:
    return Tokens(ids[None], np.zeros_like(ids)[None], np.arange(len(ids))[None])


def whole_batch(prompted: TrainedModel, start: Start) -> tuple[Batch, int]:
    """Return a start's batch as in training, and the position that predicts its last token."""
    target = np.append(start.target, 0)
    weights = (np.arange(len(target)) == len(target) - 1).astype(np.float32)[None]
    source = None if start.source is None else tokens(start.source)
    batch = prompted.recipe.layout.arrange(Example(source, tokens(target), weights), prompted.vocab)
    return batch, int(batch.weights[0].argmax())


def greedy_without_cache(prompted: TrainedModel, start: Start, count: int) -> list[int]:
    """Return the likeliest tokens, with a forward pass over the whole text for each."""
    allowed = ~prompted.vocab.is_special
    allowed[stops_of(prompted)] = True
    if start.source is not None and not len(start.target):
        allowed[prompted.vocab.sentinels] = True
    target, new = start.target, []
    for _ in range(count):
        batch, position = whole_batch(prompted, Start(start.source, target))
        logits = prompted.logits(prompted.run_backbone(batch).states[0, position]).numpy()
        token = int(np.where(allowed, logits, -np.inf).argmax())
        if token in stops_of(prompted):
            break
        target = np.append(target, token)
        new.append(token)
    return new


def starts_for(prompted: TrainedModel, texts: list[str]) -> list[Start]:
    encoded = [prompted.tokenizer.encode(text) for text in texts]
    if prompted.continues:
        return [Start(None, np.concatenate([prompted.prompt_prefix, ids])) for ids in encoded]
    return [Start(np.concatenate([ids, prompted.end_token]), ids[:0]) for ids in encoded]


@pytest.mark.product
@pytest.mark.parametrize("position", kinds.names("nn/positions"))
@pytest.mark.parametrize("family", DECODERS)
def test_decoding_with_the_cache_equals_decoding_without_it(
    make_prompted: Make, family: str, position: str
) -> None:
    prompted = make_prompted(family, position)
    texts = ["The cat sat on the", "A bird", "One day the sun", "The dog ran to"]
    starts = starts_for(prompted, texts)
    decoded = decode(prompted, starts, Sampling(tokens=12, temperature=0), stops_of(prompted))
    for start, text in zip(starts, decoded, strict=True):
        assert text.ids.tolist() == greedy_without_cache(prompted, start, 12)


def test_tokens_after_a_sentinel_are_read_at_its_place(make_prompted: Make) -> None:
    prompted = make_prompted("placed")
    first, second = prompted.vocab.sentinels[:2].tolist()
    start = Start(np.array([30, first, 31, 32, 33, 34, second]), np.array([], np.int64))
    new = np.array([first, 40, second, 41, 42])
    continuation = Continuation(prompted, [next_token_batch(prompted, [start])])
    for part in np.split(new, [1, 3]):
        continuation.read(part[None])
        continuation.accept(np.array([len(part)]))
    batch, position = whole_batch(prompted, Start(start.source, new))
    whole = prompted.run_backbone(batch).states[0, position]
    torch.testing.assert_close(continuation.states[0, -1], whole, atol=1e-5, rtol=1e-4)
    assert batch.positions[0].tolist() == [0, 1, 2, 6, 7, 8]


def test_the_cache_holds_cache_width_numbers_per_position(make_prompted: Make) -> None:
    prompted = make_prompted("decoder")
    batch, _ = whole_batch(prompted, starts_for(prompted, ["The cat sat on the"])[0])
    leaves = tree_leaves(prompted.run_backbone(batch).cache)
    numbers = sum(leaf.numel() for leaf in leaves if isinstance(leaf, torch.Tensor))
    assert numbers == prompted.recipe.model.cache_width * batch.ids.shape[1]


def test_the_state_of_a_recurrent_layer_does_not_grow(make_prompted: Make) -> None:
    prompted = make_prompted("delta")
    assert not prompted.recipe.model.cache_width
    sizes = set()
    for text in ("The cat", "The cat sat on the mat and the dog sat on the log"):
        batch, _ = whole_batch(prompted, starts_for(prompted, [text])[0])
        cache = prompted.run_backbone(batch).cache
        sizes.add(sum(part.numel() for layer in cache for part in layer.parts))
    assert len(sizes) == 1


def test_equal_seeds_give_equal_texts(make_prompted: Make) -> None:
    prompted = make_prompted("decoder")
    one, again, other = (
        generate(prompted, ["The cat"], Sampling(tokens=12, temperature=1.0, seed=seed))[0].text
        for seed in (1, 1, 2)
    )
    assert one == again != other
    samples = generate(prompted, ["The cat"], Sampling(tokens=12, temperature=1.0), samples=2)
    assert samples[0].text != samples[1].text


def test_top_k_of_one_is_greedy(make_prompted: Make) -> None:
    prompted = make_prompted("decoder")
    hot = Sampling(tokens=12, temperature=5.0, top_k=1)
    cold = Sampling(tokens=12, temperature=0.0)
    prompts = ["The cat", "A bird sang"]
    assert generate(prompted, prompts, hot) == generate(prompted, prompts, cold)


def reference_distribution(logits: Array, sampling: Sampling) -> Array:
    """Return the distribution of one token, with top-k and top-p in a plain loop."""
    order = np.argsort(-logits)
    p = np.exp(logits / sampling.temperature)
    if sampling.top_k:
        p[order[sampling.top_k :]] = 0
    p /= p.sum()
    kept, total = [], 0.0
    for token in order:
        if total >= sampling.top_p:
            break
        kept.append(token)
        total += p[token]
    only = np.zeros_like(p)
    only[kept] = p[kept]
    return only / only.sum()


@pytest.mark.parametrize("top_k", [0, 3, 20])
@pytest.mark.parametrize("top_p", [0.1, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("temperature", [0.5, 1.3])
def test_distribution_equals_the_reference(top_k: int, top_p: float, temperature: float) -> None:
    logits = np.random.default_rng(0).normal(size=(5, 20)) * 2
    sampling = Sampling(temperature=temperature, top_k=top_k, top_p=top_p)
    rows = distribution(torch.from_numpy(logits), sampling).numpy()
    for row, row_logits in zip(rows, logits, strict=True):
        np.testing.assert_allclose(row, reference_distribution(row_logits, sampling), atol=1e-12)


@pytest.mark.parametrize("temperature", [5e-324, 1e-300, 1e-6, 1000.0])
def test_every_temperature_above_zero_gives_probabilities(temperature: float) -> None:
    logits = torch.tensor([[1.0, 3.0, -2.0]])
    probabilities = distribution(logits, Sampling(temperature=temperature, top_k=0))
    assert float(probabilities.sum()) == pytest.approx(1.0)
    assert int(probabilities.argmax()) == 1


def test_sampled_tokens_follow_the_distribution() -> None:
    logits = torch.tensor([[0.0, 1.0, 2.0, -1.0]])
    sampling = Sampling(temperature=1.0, top_k=3)
    draws = (torch.arange(10_000) + 0.5).double() / 10_000
    chosen = sample_tokens(logits.expand(10_000, 4), sampling, draws)
    share = torch.bincount(chosen, minlength=4) / 10_000
    expected = distribution(logits, sampling)[0].float()
    torch.testing.assert_close(share, expected, atol=2e-4, rtol=0)
    assert share[3] == 0


def test_decoding_stops_at_the_last_position(make_prompted: Make) -> None:
    prompted = make_prompted("decoder", length=16)  # 64 positions
    stops = np.empty(0, dtype=np.int64)
    start = starts_for(prompted, ["The cat sat"])[0]
    text = decode(prompted, [start], Sampling(tokens=200, temperature=0), stops)[0]
    assert text.stopped == "length"
    # The last position is read, and predicts one more token.
    assert len(start.target) + len(text.ids) == 64 + 1
    with pytest.raises(UserError, match="64 positions"):
        generate(prompted, ["cat " * 65], GREEDY)


def test_a_stop_token_ends_the_text(make_prompted: Make) -> None:
    prompted = make_prompted("decoder", "rotary")
    start = starts_for(prompted, ["The cat"])[0]
    greedy = Sampling(tokens=10, temperature=0)
    free = decode(prompted, [start], greedy, np.empty(0, np.int64), scores=True)[0]
    assert free.stopped == "tokens" and len(free.ids) == 10
    stop = free.ids[4:5]
    cut = decode(prompted, [start], greedy, stop, scores=True)[0]
    assert cut.stopped == "end"
    assert cut.ids.tolist() == free.ids[: int((free.ids == stop[0]).argmax())].tolist()
    assert cut.log_probs is not None and free.log_probs is not None
    np.testing.assert_allclose(cut.log_probs, free.log_probs[: len(cut.ids) + 1], atol=1e-6)


def test_special_tokens_are_never_generated(make_prompted: Make) -> None:
    prompted = make_prompted("decoder")
    hot = Sampling(tokens=40, temperature=9.0, top_k=0)
    start = starts_for(prompted, ["The cat"])[0]
    for text in decode(prompted, [start] * 3, hot, stops_of(prompted)):
        assert not prompted.vocab.is_special[text.ids].any()


def test_an_encoder_is_refused(make_prompted: Make) -> None:
    with pytest.raises(UserError, match="fills blanks"):
        generate(make_prompted("encoder"), ["The cat"], GREEDY)


def test_an_empty_prompt_is_refused_by_models_with_a_source(make_prompted: Make) -> None:
    assert generate(make_prompted("decoder"), [""], GREEDY)[0].tokens
    with pytest.raises(UserError, match="empty"):
        generate(make_prompted("encoder_decoder"), [""], GREEDY)


def test_generated_text_keeps_the_spaces_of_a_byte_level_tokenizer(
    make_prompted: Make, bpe: Tokenizer
) -> None:
    prompted = make_prompted("decoder", text=bpe)
    start = starts_for(prompted, ["The cat"])[0]
    new = decode(prompted, [start], Sampling(tokens=8, temperature=0), stops_of(prompted))[0]
    text = generate(prompted, ["The cat"], Sampling(tokens=8, temperature=0))[0].text
    assert "The cat" + text == prompted.tokenizer.decode(np.concatenate([start.target, new.ids]))


@pytest.mark.product(few=2)
@pytest.mark.parametrize("temperature", [0.0, 0.3])
@pytest.mark.parametrize("family", DECODERS)
def test_repeated_text_is_read_several_tokens_at_a_time_with_the_same_result(
    make_prompted: Make, monkeypatch: pytest.MonkeyPatch, family: str, temperature: float
) -> None:
    prompted = make_prompted(family, "rotary")
    starts = starts_for(prompted, ["The cat sat", "A bird", "One day the sun"])
    sampling, reads = Sampling(tokens=30, temperature=temperature), []
    run_backbone = TrainedModel.run_backbone

    def counted(self: TrainedModel, batch: Batch, cache: object = None) -> object:
        reads.append(batch.ids.shape[1])
        return run_backbone(self, batch, cache)

    monkeypatch.setattr(TrainedModel, "run_backbone", counted)
    none = np.empty(0, np.int64)
    guessed = decode(prompted, starts, sampling, none, scores=True)
    with_guesses = len(reads)
    monkeypatch.setattr(decoder, "AHEAD", 1)
    reads.clear()
    one_by_one = decode(prompted, starts, sampling, none, scores=True)
    assert sum(length > 1 for length in reads) <= len(starts), "only starts are longer"
    for one, other in zip(guessed, one_by_one, strict=True):
        assert one.ids.tolist() == other.ids.tolist()
        np.testing.assert_allclose(one.log_probs, other.log_probs, atol=1e-5)
    if not temperature and "delta" not in family:  # a state takes no token back
        assert with_guesses < len(reads), "greedy texts of tiny models repeat themselves"


@pytest.mark.product(few=2)
@pytest.mark.parametrize("family", [*DECODERS, "stream"])
def test_texts_that_join_later_are_those_decoded_alone(make_prompted: Make, family: str) -> None:
    prompted = make_prompted(family, "relative" if family == "stream" else "rotary")
    starts = starts_for(prompted, ["The cat sat on", "A bird", "One day the sun shone", "The dog"])
    none, joined = np.empty(0, np.int64), Decoder(prompted, np.empty(0, np.int64))
    limits = [
        TextLimits(Sampling(9 + 5 * n, temperature=n / 4, seed=n), scores=True, alternatives=n)
        for n in range(len(starts))
    ]
    texts = []
    for start, limit in zip(starts, limits, strict=True):  # each a few steps later
        texts += joined.add([start], [limit])
        joined.step()
        joined.step()
    if prompted.recipe.model.cache_can_be_ragged:
        assert len(joined.groups) == len({group.source_length for group in joined.groups})
    while joined.groups:
        joined.step()
    for text, start, limit in zip(texts, starts, limits, strict=True):
        (alone,) = decode(prompted, [start], limit.sampling, none, scores=True)
        assert text.generated().ids.tolist() == alone.ids.tolist()
        np.testing.assert_allclose(text.nats, alone.log_probs, atol=1e-5)
        assert [len(best) for best in text.alternatives] == [limit.alternatives] * len(text.ids)
        if limit.alternatives and not limit.sampling.temperature:
            assert [best[0][1] for best in text.alternatives] == text.nats


def test_a_text_that_is_dropped_leaves_the_others_as_they_are(make_prompted: Make) -> None:
    prompted, none = make_prompted("decoder", "rotary"), np.empty(0, np.int64)
    starts = starts_for(prompted, ["The cat sat on", "A bird", "One day the sun shone"])
    decoder, limits = Decoder(prompted, none), TextLimits(Sampling(20, temperature=0))
    texts = decoder.add(starts, [limits] * 3)
    decoder.step()
    decoder.drop({texts[0]})
    while decoder.groups:
        decoder.step()
    alone = decode(prompted, starts, limits.sampling, none)
    assert [t.ids for t in texts[1:]] == [one.ids.tolist() for one in alone[1:]]


def test_guesses_are_what_followed_the_same_tokens_before() -> None:
    drafts = Drafts([5, 6, 7, 8, 9, 6, 7])
    assert drafts.guess(8) == [8, 9]
    drafts.verified(2, 2)
    assert drafts.guess(8) == [8, 9, 6, 7]
    assert drafts.guess(1) == [8]
    drafts.extend([1])
    assert drafts.guess(8) == []
    assert Drafts([1, 2, 1, 2]).guess(2) == [1, 2]
