"""Parts of texts scored by each family, against probabilities computed by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from foreword.errors import UserError
from foreword.evaluation.passages import Passage, max_input_tokens, score_passages, tokens_of
from foreword.evaluation.scorer import padded
from foreword.evaluation.scoring import score
from foreword.nn.masks import CausalMask
from foreword.runs.trained_model import TrainedModel
from foreword.text.tokenizer import Tokenizer
from foreword.text.tokenizers._contract import TokenizerKind
from foreword.text.tokenizers.bpe import BPE
from foreword.text.tokenizers.char import Char
from foreword.text.tokenizers.unigram import Unigram
from foreword.text.tokenizers.word import Word
from foreword.text.tokenizers.wordpiece import WordPiece
from foreword.types import Array, Batch
from tests.evaluation.conftest import TEXTS, Make

TEXT = Passage(" the mat.", before="The cat sat on", after=" The dog ran.")

TOKENIZERS: dict[str, TokenizerKind] = {
    "bpe": BPE(vocab=380),
    "unigram": Unigram(vocab=150),
    "wordpiece": WordPiece(vocab=200),
    "word": Word(min_count=1),
    "char": Char(),
}


@pytest.fixture(scope="module", params=TOKENIZERS)
def any_tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return TOKENIZERS[request.param].train(TEXTS * 4)


def pieces(prompted: TrainedModel, passage: Passage) -> list[str]:
    return [prompted.tokenizer.token(i) for i in tokens_of(prompted, passage)]


def causal_table(prompted: TrainedModel, ids: Array) -> Array:
    """Return the log-probabilities after each token of one row, (length, vocab)."""
    batch = Batch(ids[None], np.arange(len(ids))[None], CausalMask())
    return prompted.logits(prompted.run_backbone(batch).states[0]).log_softmax(-1).numpy()


def one(prompted: TrainedModel, passage: Passage, *, ranks: bool = False) -> tuple[float, Array]:
    (found,) = score_passages(prompted, [passage], ranks=ranks)
    return found.nats, found.ranks


@pytest.mark.parametrize("family", ["decoder", "hybrid"])
def test_a_causal_model_scores_the_passage_and_what_follows_given_what_is_before(
    make_prompted: Make, family: str
) -> None:
    prompted = make_prompted(family)
    ids = np.concatenate([prompted.prompt_prefix, prompted.tokenizer.encode(TEXT.full_text)])
    before = len(prompted.prompt_prefix) + len(prompted.tokenizer.encode(TEXT.before))
    table = causal_table(prompted, ids)
    places = np.arange(before, len(ids))
    expected = table[places - 1, ids[places]]
    nats, ranks = one(prompted, TEXT, ranks=True)
    assert nats == pytest.approx(expected.sum(), abs=1e-4)
    assert ranks.tolist() == [int((table[p - 1] >= table[p - 1, ids[p]]).sum()) - 1 for p in places]


def test_a_whole_text_has_its_score_without_the_end(make_prompted: Make) -> None:
    prompted = make_prompted("decoder")
    whole = score(prompted, "The cat sat on the mat.")
    nats, _ = one(prompted, Passage("The cat sat on the mat."))
    assert nats == pytest.approx(whole.log_probs[:-1].sum(), abs=1e-4)


def test_a_long_context_is_cut_from_the_left(make_prompted: Make) -> None:
    prompted = make_prompted("decoder", length=8)
    long = Passage(" ran", before="The cat sat on the mat. " * 5 + "The dog")
    ids = prompted.tokenizer.encode(long.full_text)[-9:]
    table = causal_table(prompted, ids[:-1])
    assert one(prompted, long)[0] == pytest.approx(float(table[-1, ids[-1]]), abs=1e-4)


@pytest.mark.parametrize(
    "family",
    [
        *("decoder", "stream", "transformer_xl", "hybrid", "encoder", "xlnet", "electra"),
        *("encoder_decoder", "goes_on", "prefix", "span_decoder", "deshuffles"),
    ],
)
def test_a_text_that_is_not_read_in_whole_is_marked(make_prompted: Make, family: str) -> None:
    prompted = make_prompted(family)
    room = max_input_tokens(prompted)
    assert room is not None
    before = " ".join(["cat"] * room)
    short, long = score_passages(
        prompted, [Passage(" dog ran to", "The cat"), Passage(" dog ran to", before)]
    )
    assert (short.is_cut, long.is_cut) == (False, True)


@pytest.mark.parametrize("family", ["encoder_decoder", "prefix", "span_decoder"])
def test_text_around_a_sentinel_is_cut_as_far_as_the_target_needs(
    make_prompted: Make, family: str
) -> None:
    prompted = make_prompted(family)
    assert prompted.limit is not None
    many = " ".join(["cat"] * prompted.limit)
    # All before the passage is cut, then the end of what stands after it.
    blank = prompted.source_of(np.asarray(prompted.vocab.sentinels[:1]))
    target = 1 + len(tokens_of(prompted, Passage(" dog ran", many)))
    room = prompted.limit - (len(blank) if family == "encoder_decoder" else len(blank) + target)
    left = " ".join(["cat"] * room)
    for after, is_cut in ((left, False), (f"{left} cat", True), (many, True)):
        (found,) = score_passages(prompted, [Passage(" dog ran", "", f" {after}")])
        assert found.is_cut == is_cut
    (cut,) = score_passages(prompted, [Passage(" dog ran", "The", f" {many}")])
    (rest,) = score_passages(prompted, [Passage(" dog ran", "", f" {left}")])
    assert cut.nats == pytest.approx(rest.nats, abs=1e-5)


@pytest.mark.parametrize("family", ["prefix", "deshuffles", "encoder_decoder"])
def test_a_target_without_room_is_refused(make_prompted: Make, family: str) -> None:
    prompted = make_prompted(family)
    assert prompted.limit is not None
    many = " ".join(["cat"] * prompted.limit)
    with pytest.raises(UserError, match="positions; give a shorter one"):
        one(prompted, Passage(f" {many}", "The"))
    half = " ".join(["cat"] * (prompted.limit - 4))
    if family != "encoder_decoder":
        with pytest.raises(UserError, match="positions; give a shorter one"):
            score(prompted, half, half)


def test_a_row_that_is_just_full_is_not_cut(make_prompted: Make) -> None:
    # The last token is predicted, not read; special tokens take the places that are left.
    for family, most in (("decoder", 32), ("transformer_xl", 32 + 16), ("encoder", 30)):
        prompted = make_prompted(family)
        for length in (most, most + 1):
            (found,) = score_passages(prompted, [Passage(" dog", " ".join(["cat"] * (length - 1)))])
            assert found.is_cut == (length > most), family


def test_a_masked_model_hides_the_rest_of_the_word(make_prompted: Make, bpe: Tokenizer) -> None:
    prompted = make_prompted("encoder", length=64, text=bpe)
    ids, offsets = prompted.tokenizer.encode_with_offsets(TEXT.full_text)
    begin, end = TEXT.span
    whole = np.concatenate([prompted.bos, ids, prompted.eos])
    starts = prompted.vocab.starts_word[ids]
    total = 0.0
    for n in np.flatnonzero((offsets[:, 1] > begin) & (offsets[:, 0] < end)):
        stop = n + 1
        while stop < len(ids) and offsets[stop, 0] < end and not starts[stop]:
            stop += 1
        masked = whole.copy()
        masked[len(prompted.bos) + np.arange(n, stop)] = prompted.vocab.id("[MASK]")
        states = prompted.run_backbone(prompted.encoding_batch(padded([masked]))).states
        table = prompted.logits(states).log_softmax(-1)[0]
        total += float(table[len(prompted.bos) + n, ids[n]])
    inside = bpe.vocab.starts_word[bpe.encode(TEXT.text)]
    assert not inside.all(), "no word of several tokens"
    assert one(prompted, TEXT)[0] == pytest.approx(total, abs=1e-4)


def test_a_discriminator_scores_tokens_as_genuine(make_prompted: Make) -> None:
    prompted = make_prompted("electra")
    ids, offsets = prompted.tokenizer.encode_with_offsets(TEXT.full_text)
    begin, end = TEXT.span
    whole = np.concatenate([prompted.bos, ids, prompted.eos])
    batch = prompted.encoding_batch(padded([whole]))
    states = prompted.model.backbone(batch.to(prompted.device)).states
    replaced = torch.sigmoid(prompted.model.heads["replaced"](states)[0, :, 0])
    inside = np.flatnonzero((offsets[:, 1] > begin) & (offsets[:, 0] < end)) + len(prompted.bos)
    expected = float((1 - replaced[inside]).log().sum().detach())
    assert one(prompted, TEXT)[0] == pytest.approx(expected, abs=1e-4)
    with pytest.raises(UserError, match="tells replaced tokens and predicts none"):
        one(prompted, TEXT, ranks=True)


def test_an_encoder_decoder_scores_the_passage_in_place_of_a_sentinel(make_prompted: Make) -> None:
    prompted = make_prompted("encoder_decoder")
    expected = score(prompted, "<extra_id_0> the mat.", "The cat sat on<extra_id_0> The dog ran.")
    # Without the sentinel before it and the end after it.
    assert one(prompted, TEXT)[0] == pytest.approx(expected.log_probs[1:-1].sum(), abs=1e-4)


def test_an_encoder_decoder_scores_a_text_alone_word_by_word(make_prompted: Make) -> None:
    prompted = make_prompted("encoder_decoder")
    words = [("The", "<extra_id_0> dog"), ("dog", "The<extra_id_0>")]
    parts = [score(prompted, f"<extra_id_0>{f' {w}' if n else w}", source).log_probs[1:-1]
             for n, (w, source) in enumerate(words)]  # fmt: skip
    assert one(prompted, Passage("The dog"))[0] == pytest.approx(
        float(np.concatenate(parts).sum()), abs=1e-4
    )


def test_spaces_around_a_passage_are_moved_out() -> None:
    assert Passage("  word ", before="a", after="b").span == (3, 7)
    assert Passage(" ", before="a").span == (2, 2)


def test_a_passage_without_a_token_is_refused(make_prompted: Make) -> None:
    prompted = make_prompted("decoder")
    with pytest.raises(UserError, match="no token for ' '"):
        one(prompted, Passage(" ", before="The cat"))


@pytest.mark.product
@pytest.mark.parametrize("option", [" cat", " mat", " bird", " on", "s", ",", " , and", "\nThe"])
def test_a_passage_has_all_that_it_adds_to_the_text_before_it(
    make_prompted: Make, any_tokenizer: Tokenizer, option: str
) -> None:
    prompted = make_prompted("decoder", text=any_tokenizer)
    before = "The dog sat on the log"
    given = any_tokenizer.encode(before)
    whole = any_tokenizer.encode(before + option)
    same = [a == b for a, b in zip(given, whole, strict=False)]
    kept = [*same, False].index(False)
    assert tokens_of(prompted, Passage(option, before)) == tuple(whole[kept:])
    # A space of the text before is the passage's too.
    assert tokens_of(prompted, Passage("cat", f"{before} ")) == tokens_of(
        prompted, Passage(" cat", before)
    )
    # An "s" may make another word of "log", which then is the passage's.
    assert kept == len(given) or option == "s"
    stem = before if kept == len(given) else "The dog sat on the"
    total = one(prompted, Passage(before + option))[0] - one(prompted, Passage(stem))[0]
    assert one(prompted, Passage(option, before))[0] == pytest.approx(total, abs=1e-4)


def test_a_passage_at_the_beginning_has_all_tokens(
    make_prompted: Make, any_tokenizer: Tokenizer
) -> None:
    prompted = make_prompted("decoder", text=any_tokenizer)
    for text in ("The cat", " The cat", "at"):
        assert tokens_of(prompted, Passage(text)) == tuple(any_tokenizer.encode(text))


def test_options_with_a_space_token_and_in_one_token_are_told_apart_from_the_text_around(
    make_prompted: Make, bpe: Tokenizer
) -> None:
    prompted = make_prompted("decoder", text=bpe)
    around = ("The dog saw the", ", and ran")
    assert pieces(prompted, Passage(" cat", *around)) == ["·cat"]
    assert pieces(prompted, Passage(" mat", *around)) == ["·", "m", "at"]
    assert pieces(prompted, Passage("mat", "The dog saw the ", around[1])) == ["·", "m", "at"]
    # Neither the space after it nor a word before it, or the beginning of its own word.
    assert pieces(prompted, Passage(" cat", "The dog saw the", " mat")) == ["·cat"]
    assert pieces(prompted, Passage("at", "The dog saw the m")) == ["at"]
    assert pieces(prompted, Passage(",", "The dog saw the mat")) == [","]


def test_a_masked_model_hides_a_word_with_its_space_token(
    make_prompted: Make, bpe: Tokenizer
) -> None:
    prompted = make_prompted("encoder", length=64, text=bpe)
    passage = Passage(" mat", "The cat sat on the", ", and ran")
    ids = np.concatenate([prompted.bos, bpe.encode(passage.full_text), prompted.eos])
    first = len(prompted.bos) + len(bpe.encode(passage.before))
    total = 0.0
    for place in range(first, first + 3):  # the space, m, at
        masked = ids.copy()
        masked[place : first + 3] = prompted.vocab.id("[MASK]")
        states = prompted.run_backbone(prompted.encoding_batch(padded([masked]))).states
        total += float(prompted.logits(states).log_softmax(-1)[0, place, ids[place]])
    assert one(prompted, passage)[0] == pytest.approx(total, abs=1e-4)


def test_a_sentinel_stands_for_a_word_with_its_space_token(make_prompted: Make) -> None:
    text = Unigram(vocab=150).train(TEXTS * 4)
    prompted = make_prompted("encoder_decoder", text=text)
    passage = Passage(" on", "The cat sat", " the mat.")
    assert pieces(prompted, passage) == ["·", "o", "n"]
    expected = score(prompted, "<extra_id_0> on", "The cat sat<extra_id_0> the mat.")
    assert expected.tokens[1:-1] == ("·", "o", "n")
    assert one(prompted, passage)[0] == pytest.approx(expected.log_probs[1:-1].sum(), abs=1e-4)


def test_a_tie_is_not_the_likeliest(make_prompted: Make) -> None:
    prompted = make_prompted("decoder")
    with torch.no_grad():
        for parameter in prompted.model.parameters():
            parameter.zero_()
    (found,) = score_passages(prompted, [TEXT], ranks=True)
    assert (found.ranks == prompted.vocab.size - 1).all()
    assert not found.is_likeliest
