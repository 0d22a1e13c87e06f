"""Extending a tokenizer on another text."""

from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import Tokenizer as Engine
from tokenizers import models, pre_tokenizers

from foreword.errors import UserError
from foreword.text.extended import add_special, extend
from foreword.text.tokenizer import Tokenizer
from foreword.text.tokenizers.bpe import BPE
from foreword.text.tokenizers.unigram import Unigram
from foreword.text.tokenizers.word import Word
from foreword.text.tokenizers.wordpiece import WordPiece

OLD = [
    "the cat sat on the mat and the dog ran to the river bend",
    "a bird sang in the old tree",
] * 9
NEW = ["the enzyme binds the ribosome in the ribosome assay", "a ribosome and an enzyme"] * 9


@pytest.fixture(params=[WordPiece(vocab=170), BPE(vocab=380), Unigram(vocab=140)], ids=str)
def old(request: pytest.FixtureRequest) -> Tokenizer:
    tokenizer: Tokenizer = request.param.train([*OLD, "abcdefghijklmnopqrstuvwxyz zymbinos"])
    return tokenizer


def test_new_words_become_one_piece(old: Tokenizer) -> None:
    extended = extend(old, NEW, 12)
    new = extended.tokenizer
    assert new.vocab.size == old.vocab.size + 12
    assert len(new.encode(" ribosome")) < len(old.encode(" ribosome")) - 2
    assert new.vocab.special == old.vocab.special
    assert not new.vocab.is_special[-12:].any()
    assert new.pieces[: old.vocab.size] == old.pieces
    for text in NEW + OLD:
        assert new.decode(new.encode(text)) == old.decode(old.encode(text))
    for text in OLD:
        cut = new.encode(text)
        if (cut < old.vocab.size).all():
            assert cut.tolist() == old.encode(text).tolist()


def test_new_pieces_name_the_pieces_they_replace(old: Tokenizer) -> None:
    extended = extend(old, NEW, 12)
    for new, replaced in extended.replaced.items():
        assert max(replaced) < old.vocab.size
        pieces = [old.pieces[i].removeprefix("##") for i in replaced]
        assert "".join(pieces) == extended.tokenizer.pieces[new].removeprefix("##")


def test_extension_is_reproducible(old: Tokenizer) -> None:
    assert extend(old, NEW, 9).tokenizer.fingerprint == extend(old, NEW, 9).tokenizer.fingerprint


def test_an_extended_tokenizer_loads_back_equal(old: Tokenizer, tmp_path: object) -> None:
    new = extend(old, NEW, 5).tokenizer
    new.save(f"{tmp_path}")
    again = Tokenizer.load(f"{tmp_path}")
    assert again.fingerprint == new.fingerprint
    assert again.kind["extended"] == 5


def test_rows_without_a_token_are_used_first(old: Tokenizer) -> None:
    engine = Engine.from_str(old.to_str())
    padded = Tokenizer(engine, size=old.vocab.size + 20)
    extended = extend(padded, NEW, 5)
    assert min(extended.replaced) == old.vocab.size
    assert extended.tokenizer.vocab.size == old.vocab.size + 20


def test_more_pieces_than_the_text_supports_are_refused(old: Tokenizer) -> None:
    with pytest.raises(UserError, match="this text supports only"):
        extend(old, NEW, 10_000)


def test_a_word_tokenizer_cannot_be_extended() -> None:
    with pytest.raises(UserError, match="does not join pieces"):
        extend(Word(min_count=1).train(OLD), NEW, 2)


def bare(words: dict[str, int], size: int | None = None) -> Tokenizer:
    """A tokenizer without any special token but the unknown one."""
    engine = Engine(models.WordLevel(words, "<unk>"))
    engine.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return Tokenizer(engine, {"unk_token": "<unk>"}, size=size)


def test_special_tokens_are_added_after_the_last_id(tmp_path: Path) -> None:
    old = bare({"<unk>": 0, "cat": 1, "sat": 2})
    new = add_special(old, ["[SEP]", "<s>"])
    assert new.vocab.special == {"[UNK]": 0, "[SEP]": 3, "<s>": 4}
    assert new.vocab.is_special.tolist() == [True, False, False, True, True]
    text = "cat [SEP] sat <s>"  # in a corpus these are words like any others
    assert new.encode(text).tolist() == old.encode(text).tolist() == [1, 0, 2, 0]
    assert new.encode(text, special=True).tolist() == [1, 3, 2, 4]
    new.save(tmp_path)
    assert Tokenizer.load(tmp_path).vocab.special == new.vocab.special
    assert "[SEP]" not in old.vocab.special


def test_special_tokens_use_rows_without_a_token_first() -> None:
    new = add_special(bare({"<unk>": 0, "cat": 1}, size=4), ["[SEP]", "[CLS]", "<s>"])
    assert [new.vocab.id(name) for name in ("[SEP]", "[CLS]", "<s>")] == [2, 3, 4]
    assert new.vocab.size == 5


def test_special_tokens_never_overwrite_another_token() -> None:
    with pytest.raises(UserError, match=r"no \[SEP\], and none can be added: .* \('sat' is 2\)"):
        add_special(bare({"<unk>": 0, "sat": 2}), ["[SEP]"])
