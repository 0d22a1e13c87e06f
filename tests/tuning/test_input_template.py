from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest
import tokenizers

from foreword.errors import UserError
from foreword.runs.run_folder import open_run
from foreword.tuning.input_template import (
    InputTemplate,
    TemplatedText,
    cut_pair,
    missing_special_tokens,
    template_of,
)
from tests.tuning.runs import make_run

BERT = InputTemplate(
    (2,), (3,), 8, is_causal=False, has_segments=True, separator=(3,), pooling="first"
)


def test_a_text_gets_special_tokens_and_is_cut() -> None:
    filled = BERT.apply([10, 11])
    assert filled.ids.tolist() == [2, 10, 11, 3]
    assert not filled.was_cut
    filled = BERT.apply(list(range(10, 20)))
    assert filled.ids.tolist() == [2, 10, 11, 12, 13, 14, 15, 3]
    assert filled.was_cut


def test_a_pair_has_two_segments_and_loses_tokens_of_the_longer_text() -> None:
    filled = BERT.apply([10, 11, 12, 13, 14, 15], [20, 21])
    assert filled.ids.tolist() == [2, 10, 11, 12, 3, 20, 21, 3]
    assert filled.segments.tolist() == [0, 0, 0, 0, 0, 1, 1, 1]
    assert filled.was_cut


@pytest.mark.full
def test_pairs_are_cut_as_transformers_cuts_the_longest_first() -> None:
    words = {"a": 0, "b": 1}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="a"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    for room in range(2, 12):
        tokenizer.enable_truncation(room)
        for n, m in itertools.product(range(16), repeat=2):
            ids = tokenizer.encode("a " * n, "b " * m).ids
            assert cut_pair(n, m, room) == (ids.count(0), ids.count(1)), (n, m, room)


@pytest.mark.parametrize(
    ("layout", "text", "pair", "positions"),
    [
        ("encoder", "[CLS] fine [SEP]", "[CLS] fine [SEP] warm [SEP]", [0, 1, 2]),
        ("two_streams", "fine [SEP]", "fine [SEP] warm [SEP]", [0, 1]),
        ("decoder", "<s> fine [CLS]", "<s> fine [SEP] warm [CLS]", [2]),
        ("word_vectors", "<s> fine </s>", "<s> fine </s> warm </s>", [0, 1, 2]),
        ("prefix", "fine </s>", "fine </s> warm </s>", [1]),  # what ends the objective's source
        ("encoder_decoder", "fine </s>", "fine </s> warm </s>", [0]),
    ],
)
def test_the_template_follows_the_recipe(
    tmp_path: Path, layout: str, text: str, pair: str, positions: list[int]
) -> None:
    trained = open_run(make_run(tmp_path, layout), "cpu")
    template = template_of(trained.recipe, trained.vocab, None)

    def tokens(filled: TemplatedText) -> str:
        return " ".join(trained.tokenizer.token(i) for i in filled.ids)

    fine, warm = trained.tokenizer.encode("fine"), trained.tokenizer.encode("warm")
    filled = template.apply(fine)
    assert tokens(filled) == text
    assert tokens(template.apply(fine, warm)) == pair
    assert template.pooled_positions(filled).tolist() == positions
    assert template.length == 32
    assert (template.start is not None) == (layout == "encoder_decoder")


def test_fresh_tokens_of_a_decoder_are_those_pretraining_never_used(tmp_path: Path) -> None:
    """Radford et al. 2018, section 3.3: embeddings of the delimiter and the start and end."""
    trained = open_run(make_run(tmp_path, "decoder"), "cpu")
    template = template_of(trained.recipe, trained.vocab, None)
    names = {trained.tokenizer.token(i) for i in template.fresh}
    assert names == {"<s>", "[SEP]", "[CLS]"}
    packing = replace(trained.recipe.packing, bos="<s>")  # type: ignore[type-var]
    shown = template_of(replace(trained.recipe, packing=packing), trained.vocab, None)
    assert {trained.tokenizer.token(i) for i in shown.fresh} == {"[SEP]", "[CLS]"}


def test_without_special_tokens_texts_end_as_in_pretraining(tmp_path: Path) -> None:
    trained = open_run(make_run(tmp_path, "decoder"), "cpu")
    end = trained.vocab.special["</s>"]
    bare = replace(trained.vocab, special={"</s>": end})
    template = template_of(trained.recipe, bare, None)
    assert (template.prefix, template.separator, template.suffix) == ((), (end,), (end,))
    assert template.fresh == ()


def test_each_pooling_has_its_positions() -> None:
    filled = BERT.apply([10, 11], [12])  # [CLS] 10 11 [SEP] 12 [SEP]
    assert BERT.pooled_positions(filled).tolist() == [0]
    assert BERT.pooled_positions(filled, "last").tolist() == [5]
    assert BERT.pooled_positions(filled, "mean").tolist() == [0, 1, 2, 3, 4, 5]
    assert BERT.pooled_positions(BERT.apply([]), "mean").tolist() == [0, 1]


def test_poolings_of_uninformed_states_are_refused() -> None:
    filled = BERT.apply([10, 11])
    with pytest.raises(UserError, match="the 'first' token of a decoder has seen no other"):
        replace(BERT, is_causal=True).pooled_positions(filled, "first")
    with pytest.raises(UserError, match="'mean' is for models of one stack"):
        replace(BERT, start=0).pooled_positions(filled, "mean")


def test_impossible_lengths_are_refused(tmp_path: Path) -> None:
    trained = open_run(make_run(tmp_path), "cpu")
    assert template_of(trained.recipe, trained.vocab, 48).length == 48
    with pytest.raises(UserError, match="--max-length 49: the model has 48 positions"):
        template_of(trained.recipe, trained.vocab, 49)
    with pytest.raises(UserError, match="no room"):
        template_of(trained.recipe, trained.vocab, 4)


@pytest.mark.parametrize("has_segments", [False, True])
def test_segments_in_attention_scores_count_as_segments(tmp_path: Path, has_segments: bool) -> None:
    position = {"kind": "relative", "segments": has_segments}
    trained = open_run(make_run(tmp_path, "two_streams", position=position), "cpu")
    assert template_of(trained.recipe, trained.vocab, None).has_segments == has_segments


@pytest.mark.parametrize(
    ("layout", "expected"), [("encoder", ["[SEP]"]), ("decoder", ["[SEP]", "[CLS]", "<s>"])]
)
def test_end_tokens_that_pretraining_lacked_are_missing(
    tmp_path: Path, layout: str, expected: list[str]
) -> None:
    trained = open_run(make_run(tmp_path, layout), "cpu")
    recipe, vocab = trained.recipe, trained.vocab
    bare = replace(vocab, special={"[UNK]": 1})
    assert missing_special_tokens(recipe, vocab) == ()
    assert missing_special_tokens(recipe, bare) == tuple(expected)
    assert missing_special_tokens(recipe, replace(vocab, special={recipe.bos_and_eos[1]: 5})) == ()
    endless = replace(recipe, packing=replace(recipe.packing, eos=""))  # type: ignore[type-var]
    assert missing_special_tokens(endless, vocab) == ()
    template = template_of(endless, vocab, None)
    assert template.separator == (vocab.id("[SEP]"),)
