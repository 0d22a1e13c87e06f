from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from foreword.errors import UserError
from foreword.runs.trained_model import open_run
from foreword.tune.input_template import (
    Framed,
    InputTemplate,
    cut_pair,
    missing_special_tokens,
    template_of,
)
from tests.tune.runs import make_run

BERT = InputTemplate(
    (2,), (3,), 8, is_causal=False, has_segments=True, between=(3,), pooling="first"
)


def test_one_text_is_wrapped_and_cut() -> None:
    framed = BERT.wrap([10, 11])
    assert framed.ids.tolist() == [2, 10, 11, 3]
    assert not framed.was_cut
    framed = BERT.wrap(list(range(10, 20)))
    assert framed.ids.tolist() == [2, 10, 11, 12, 13, 14, 15, 3]
    assert framed.was_cut


def test_a_pair_has_two_segments_and_loses_tokens_of_the_longer_text() -> None:
    framed = BERT.wrap([10, 11, 12, 13, 14, 15], [20, 21])
    assert framed.ids.tolist() == [2, 10, 11, 12, 3, 20, 21, 3]
    assert framed.segments.tolist() == [0, 0, 0, 0, 0, 1, 1, 1]
    assert framed.was_cut


def test_cut_pair_takes_tokens_one_by_one_from_the_longer() -> None:
    for n in range(9):
        for m in range(9):
            for room in range(2, 12):
                a, b = n, m
                while a + b > room:
                    a, b = (a - 1, b) if a > b else (a, b - 1)
                assert cut_pair(n, m, room) == (a, b), (n, m, room)


@pytest.mark.parametrize(
    ("layout", "text", "pair", "positions"),
    [
        ("encoder", "[CLS] fine [SEP]", "[CLS] fine [SEP] warm [SEP]", [1]),
        ("two_streams", "fine [SEP]", "fine [SEP] warm [SEP]", [0]),
        ("decoder", "<s> fine [CLS]", "<s> fine [SEP] warm [CLS]", [2]),
        ("prefix", "fine </s>", "fine </s> warm </s>", [1]),  # what ends the objective's source
        ("encoder_decoder", "fine </s>", "fine </s> warm </s>", [0]),
    ],
)
def test_the_frame_follows_the_recipe(
    tmp_path: Path, layout: str, text: str, pair: str, positions: list[int]
) -> None:
    trained = open_run(make_run(tmp_path, layout), "cpu")
    template = template_of(trained.recipe, trained.vocab, None)

    def tokens(framed: Framed) -> str:
        return " ".join(trained.tokenizer.token(i) for i in framed.ids)

    fine, warm = trained.tokenizer.encode("fine"), trained.tokenizer.encode("warm")
    framed = template.wrap(fine)
    assert tokens(framed) == text
    assert tokens(template.wrap(fine, warm)) == pair
    assert template.pooled_positions(framed).tolist() == positions
    assert template.length == 32
    assert (template.start is not None) == (layout == "encoder_decoder")


def test_a_decoders_frame_is_fresh_but_for_what_pretraining_showed(tmp_path: Path) -> None:
    """Radford et al. 2018, section 3.3: embeddings of the delimiter and the start and end."""
    trained = open_run(make_run(tmp_path, "decoder"), "cpu")
    template = template_of(trained.recipe, trained.vocab, None)
    names = {trained.tokenizer.token(i) for i in template.fresh}
    assert names == {"<s>", "[SEP]", "[CLS]"}
    packing = replace(trained.recipe.packing, bos="<s>")  # type: ignore[type-var]
    shown = template_of(replace(trained.recipe, packing=packing), trained.vocab, None)
    assert {trained.tokenizer.token(i) for i in shown.fresh} == {"[SEP]", "[CLS]"}


def test_a_vocabulary_without_these_tokens_ends_texts_as_pretraining_did(tmp_path: Path) -> None:
    trained = open_run(make_run(tmp_path, "decoder"), "cpu")
    end = trained.vocab.special["</s>"]
    bare = replace(trained.vocab, special={"</s>": end})
    template = template_of(trained.recipe, bare, None)
    assert (template.prefix, template.between, template.suffix) == ((), (end,), (end,))
    assert template.fresh == ()


def test_each_pooling_reads_its_states() -> None:
    framed = BERT.wrap([10, 11], [12])  # [CLS] 10 11 [SEP] 12 [SEP]
    assert BERT.pooled_positions(framed).tolist() == [0]
    assert BERT.pooled_positions(framed, "last").tolist() == [5]
    assert BERT.pooled_positions(framed, "mean").tolist() == [1, 2, 4]
    assert BERT.pooled_positions(BERT.wrap([]), "mean").tolist() == [0, 1]


def test_states_that_know_nothing_are_refused() -> None:
    framed = BERT.wrap([10, 11])
    with pytest.raises(UserError, match="the 'first' token of a decoder has seen no other"):
        replace(BERT, is_causal=True).pooled_positions(framed, "first")
    with pytest.raises(UserError, match="'mean' is for models of one stack"):
        replace(BERT, start=0).pooled_positions(framed, "mean")


def test_impossible_lengths_are_refused(tmp_path: Path) -> None:
    trained = open_run(make_run(tmp_path), "cpu")
    assert template_of(trained.recipe, trained.vocab, 48).length == 48
    with pytest.raises(UserError, match="--max-length 49: the model has 48 positions"):
        template_of(trained.recipe, trained.vocab, 49)
    with pytest.raises(UserError, match="no room"):
        template_of(trained.recipe, trained.vocab, 4)


@pytest.mark.parametrize("has_segments", [False, True])
def test_segments_may_be_terms_of_the_scores(tmp_path: Path, has_segments: bool) -> None:
    position = {"kind": "relative", "segments": has_segments}
    trained = open_run(make_run(tmp_path, "two_streams", position=position), "cpu")
    assert template_of(trained.recipe, trained.vocab, None).has_segments == has_segments


@pytest.mark.parametrize(
    ("layout", "wanted"), [("encoder", ["[SEP]"]), ("decoder", ["[SEP]", "[CLS]", "<s>"])]
)
def test_what_no_text_ended_by_is_lacking(tmp_path: Path, layout: str, wanted: list[str]) -> None:
    trained = open_run(make_run(tmp_path, layout), "cpu")
    recipe, vocab = trained.recipe, trained.vocab
    bare = replace(vocab, special={"[UNK]": 1})
    assert missing_special_tokens(recipe, vocab) == ()
    assert missing_special_tokens(recipe, bare) == tuple(wanted)
    assert missing_special_tokens(recipe, replace(vocab, special={recipe.wrapping[1]: 5})) == ()
    endless = replace(recipe, packing=replace(recipe.packing, eos=""))  # type: ignore[type-var]
    assert missing_special_tokens(endless, vocab) == ()
    template = template_of(endless, vocab, None)
    assert template.between == (vocab.id("[SEP]"),)
