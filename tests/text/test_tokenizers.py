"""What every kind of tokenizer must do, and what is particular to each."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Sequence

import pytest
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Engine

from foreword.errors import UserError
from foreword.settings import kinds
from foreword.testing.tokenizers import CORPUS, NASTY, SENTENCES, TOKENIZER_CHECKS, TRAINING_CHECKS
from foreword.text import special, training
from foreword.text.tokenizer import Tokenizer
from foreword.text.tokenizers._contract import TokenizerKind
from foreword.text.tokenizers.bpe import BPE

from .conftest import SETTINGS


@pytest.mark.parametrize("check", TOKENIZER_CHECKS, ids=lambda check: check.__name__)
def test_every_tokenizer_keeps_the_contract(
    check: Callable[[Tokenizer], None], tokenizer: Tokenizer
) -> None:
    check(tokenizer)


@pytest.mark.parametrize("kind", kinds.names("text/tokenizers"))
@pytest.mark.parametrize("check", TRAINING_CHECKS, ids=lambda check: check.__name__)
def test_every_tokenizer_keeps_the_contract_of_training(
    check: Callable[[TokenizerKind, Sequence[str]], None], kind: str
) -> None:
    check(kinds.load("text/tokenizers", kind)(**SETTINGS.get(kind, {})), CORPUS)


@pytest.mark.parametrize("kind", kinds.names("text/tokenizers"))
def test_training_notes_what_it_is_at(kind: str) -> None:
    notes: list[str] = []
    kinds.load("text/tokenizers", kind)(**SETTINGS.get(kind, {})).train(CORPUS, notes.append)
    if kind == "char":
        assert notes == ["counting characters"]
    else:
        assert re.fullmatch(r"[\d.]+ k?B of [\d.]+ k?B read", notes[-2])
        assert notes[-1] == "choosing the vocabulary"


def test_mask_stands_for_a_word_and_its_space(trained: dict[str, Tokenizer]) -> None:
    """ "the [MASK] sat" has the ids of "the house sat" with those of the word exchanged."""
    for kind in ("wordpiece", "bpe", "unigram", "word"):
        prompt = trained[kind].encode("the [MASK] house", special=True).tolist()
        at = prompt.index(4)
        assert prompt[:at] == trained[kind].encode("the").tolist()
        assert prompt[at + 1 :] == trained[kind].encode("the house").tolist()[at:]


@pytest.mark.parametrize("text", [*NASTY, *SENTENCES], ids=range(len(NASTY) + len(SENTENCES)))
def test_bpe_decodes_every_text_exactly(trained: dict[str, Tokenizer], text: str) -> None:
    assert trained["bpe"].decode(trained["bpe"].encode(text)) == text


def test_other_kinds_decode_known_text(trained: dict[str, Tokenizer]) -> None:
    text = CORPUS[0]
    for kind in ("char", "unigram"):
        assert trained[kind].decode(trained[kind].encode(text)) == text
    words = "the lowest house, said the man."
    for kind in ("wordpiece", "word"):
        assert trained[kind].decode(trained[kind].encode(words)) == words
    exact = "문학은  언어를\n\t"
    known = kinds.load("text/tokenizers", "char")().train([exact])
    assert known.decode(known.encode(exact)) == exact


def test_unknown_text_is_counted_as_unknown(trained: dict[str, Tokenizer]) -> None:
    unknown = {kind: t.encode("the ☃☃ man").tolist().count(1) for kind, t in trained.items()}
    assert unknown == {"wordpiece": 1, "bpe": 0, "unigram": 1, "word": 1, "char": 2}


def test_tokens_have_a_readable_form(trained: dict[str, Tokenizer]) -> None:
    def pieces(kind: str, text: str) -> list[str]:
        return [trained[kind].token(i) for i in trained[kind].encode(text)]

    assert pieces("bpe", "the road\n") == ["the", "·road", "\\n"]
    assert "".join(pieces("bpe", "é문")).startswith("\\xc3\\xa9")
    assert [p.replace("·", "") for p in pieces("unigram", "the house")] != pieces(
        "unigram", "the house"
    )
    assert "".join(pieces("unigram", "the house")) == "·the·house"
    assert pieces("char", "a b\n") == ["a", "·", "b", "\\n"]
    assert all(p.startswith("##") for p in pieces("wordpiece", "roadroad")[1:])


def test_the_characters_of_tokens_hold_the_marks_of_their_letters(
    trained: dict[str, Tokenizer],
) -> None:
    # Decomposed accents and syllables, which normalising composes; a variation selector.
    for mark in ("e\u0301", "\u1112\u1161\u11ab", "\u2764\ufe0f", "\u202f\x01…e\u0327\u0301"):
        for kind, tokenizer in trained.items():
            text = f" the {mark} said{mark}"
            _, offsets = tokenizer.encode_with_offsets(text)
            whole = [text[at:end] for at, end in offsets]
            assert offsets[-1, 1] == len(text), (kind, whole)
            start = text.index("said")
            inside = offsets[(offsets[:, 1] > start) & (offsets[:, 0] < start + 4)]
            assert text[inside[0, 0] :].lstrip().startswith("said"), (kind, whole)


def test_what_decoding_does_not_give_back_is_named(trained: dict[str, Tokenizer]) -> None:
    spaces = ("line breaks", "tabs", "spaces in a row")
    lost = {kind: trained[kind].not_kept() for kind in ("bpe", "char", "unigram", "word")}
    assert lost == {"bpe": (), "char": (), "unigram": spaces, "word": spaces}
    assert trained["wordpiece"].not_kept() == (
        *spaces, "capital letters", "accents and vowel signs",
    )  # fmt: skip


def test_pieces_that_start_a_word_are_marked(trained: dict[str, Tokenizer]) -> None:
    def starts(kind: str, text: str) -> list[bool]:
        return trained[kind].vocab.starts_word[trained[kind].encode(text)].tolist()

    assert starts("wordpiece", "the, the") == [True, True, True]
    inside = starts("wordpiece", "roadhouse")
    assert inside[0] and len(inside) > 1 and not any(inside[1:])
    assert starts("bpe", " the, the\n") == [True, True, True, True]
    inside = starts("bpe", " roadhouse")
    assert inside[0] and len(inside) > 1 and not any(inside[1:])
    for piece, starts_word in zip(
        map(trained["unigram"].token, range(107, 240)),
        trained["unigram"].vocab.starts_word[107:],
        strict=False,
    ):
        assert starts_word == piece.startswith("·")
    hindi = BPE(vocab=375).train([" किताबें पढ़ी गईं हैं।"] * 20)  # marks in tokens of their own
    begins = hindi.vocab.starts_word[hindi.encode(" किताबें पढ़ी")]
    assert begins.sum() == 2 < len(begins)
    assert all(starts("word", "the house."))
    assert all(starts("char", "the house."))


def test_words_are_split_at_whitespace(tmp_path) -> None:
    """A corpus that comes as tokens: its `<unk>` and its marks are words like any other."""
    load = kinds.load("text/tokenizers", "word")
    text = " the <unk> didn't cost N $ , Mr. Smith @-@ said \n ## ##s = Title = "
    tokenizer = load(split="whitespace", min_count=1).train([text])
    ids = tokenizer.encode(text)
    words = text.split()
    assert [tokenizer.token(i) for i in ids] == words
    assert tokenizer.vocab.size == len(special.ALL) + len(set(words))
    assert not tokenizer.vocab.is_special[ids].any()
    assert tokenizer.decode(ids) == " ".join(words)
    assert tokenizer.encode("The the").tolist() == [1, tokenizer.encode("the")[0]]
    lower = load(split="whitespace", min_count=1, lowercase=True).train([text])
    assert lower.decode(lower.encode("Smith The")) == "smith the"

    tokenizer.save(tmp_path)
    assert Tokenizer.load(tmp_path).decode(ids) == " ".join(words)
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert theirs(text)["input_ids"] == ids.tolist()
    assert theirs.decode(ids) == " ".join(words)
    with pytest.raises(ValueError, match="split: punctuation or whitespace"):
        load(split="words")


@pytest.mark.parametrize("kind", kinds.names("text/tokenizers"))
def test_another_text_gives_another_tokenizer(kind: str, trained: dict[str, Tokenizer]) -> None:
    other = kinds.load("text/tokenizers", kind)(**SETTINGS[kind]).train([*CORPUS, "zq zq " * 99])
    assert other.fingerprint != trained[kind].fingerprint


def test_the_ids_of_special_tokens_are_those_of_earlier_runs(tokenizer: Tokenizer) -> None:
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<s>", "</s>"]
    assert tokenizer.vocab.special == {name: i for i, name in enumerate(names)}
    assert [tokenizer.token(i) for i in (7, 106)] == ["<extra_id_0>", "<extra_id_99>"]
    assert tokenizer.vocab.is_special.sum() == 107


def test_a_tokenizer_records_how_much_text_it_was_trained_on(tokenizer: Tokenizer) -> None:
    assert tokenizer.sample is not None
    assert tokenizer.sample.documents_kept == len(CORPUS)


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram"])
def test_a_text_with_fewer_pieces_gives_them_all(kind: str) -> None:
    load = kinds.load("text/tokenizers", kind)
    tokenizer = load(vocab=30_000).train(CORPUS)
    size = tokenizer.vocab.size
    assert f"; a vocabulary of 30,000 requested, the text has {size:,}" in training.describe(
        tokenizer
    )
    assert load(vocab=size).train(CORPUS).to_str() == tokenizer.to_str()


@pytest.mark.parametrize("kind", ["bpe", "wordpiece", "unigram"])
def test_words_without_end_are_cut_to_be_merged_but_encoded_whole(kind: str) -> None:
    """Each merge copies a word, so one of a million letters would take hours."""
    settings = kinds.load("text/tokenizers", kind)(**SETTINGS[kind])
    endless = "ab" * 5_000
    tokenizer = settings.train([*CORPUS, endless])
    assert max(map(len, tokenizer.pieces)) <= 1_000
    text = endless[:100] if kind == "wordpiece" else endless  # its longer words are [UNK]
    assert tokenizer.decode(tokenizer.encode(text)) == text
    # Words that are not long are not cut.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("foreword.text.sample._has_long_word", lambda text: True)
        cut = settings.train(CORPUS).to_str()
    assert settings.train(CORPUS).to_str() == cut


@pytest.mark.parametrize("kind", ["word", "char"])
def test_vocab_is_an_upper_bound_for_words_and_characters(kind: str) -> None:
    load = kinds.load("text/tokenizers", kind)
    assert load(vocab=30_000).train(CORPUS).vocab.size < 300
    small = load(vocab=112).train(CORPUS)
    assert small.vocab.size == 112
    assert 1 in small.encode(CORPUS[0])


@pytest.mark.parametrize("kind", kinds.names("text/tokenizers"))
def test_impossible_training_is_refused(kind: str) -> None:
    load = kinds.load("text/tokenizers", kind)
    with pytest.raises(UserError, match="no text"):
        load().train(["", ""])
    with pytest.raises(UserError, match="half a character"):
        load().train(["fine", "broken \ud800"])
    if kind in ("wordpiece", "unigram"):
        with pytest.raises(UserError, match="too small for this text"):
            load(vocab=120).train(CORPUS)


def test_a_rare_character_costs_no_vocabulary() -> None:
    for kind, vocab in (("wordpiece", 320), ("unigram", 270)):
        load = kinds.load("text/tokenizers", kind)
        rare = load(vocab=vocab).train([*CORPUS * 20, "one snowman: ☃"])
        assert rare.encode("☃").tolist()[-1] == 1
        frequent = load(vocab=vocab).train([*CORPUS, "snowmen: ☃☃☃☃"])
        assert frequent.encode("☃").tolist()[-1] != 1


def test_lowercasing_keeps_hangul_whole(trained: dict[str, Tokenizer]) -> None:
    assert trained["wordpiece"].decode(trained["wordpiece"].encode("문학은 THE Réad")).split()[
        :2
    ] == [
        "문학은",
        "the",
    ]


def test_a_lone_surrogate_is_a_user_error(tokenizer: Tokenizer) -> None:
    with pytest.raises(UserError, match="text 2 of 2, character 3: half a character"):
        tokenizer.encode_batch(["fine", "bad\udcff"])


def test_require_names_missing_special_tokens(tokenizer: Tokenizer) -> None:
    tokenizer.require(["[MASK]", "</s>"], sentinels=100)
    with pytest.raises(UserError, match=r"lacks what the objective needs: \[EOD\], 101 sentinels"):
        tokenizer.require(["[EOD]"], sentinels=101)
    with pytest.raises(UserError, match="there is no token"):
        tokenizer.token(tokenizer.vocab.size)


def test_transformers_reads_saved_tokenizers(tokenizer: Tokenizer, tmp_path) -> None:
    transformers = pytest.importorskip("transformers")
    tokenizer.save(tmp_path)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert len(theirs) == tokenizer.vocab.size
    for role, name in special.ROLES.items():
        assert getattr(theirs, role) == name
        assert getattr(theirs, f"{role}_id") == tokenizer.vocab.id(name)
    assert set(special.ALL) == set(theirs.all_special_tokens)
    prompt = "The [MASK] man <extra_id_1> 문학은 ☃"
    assert theirs(prompt)["input_ids"] == tokenizer.encode(prompt, special=True).tolist()


# -- tokenizers made elsewhere ---------------------------------------------------------------------


def _t5_like() -> Engine:
    """Pieces as sentencepiece gives them: `</s>` is one that the model itself may choose."""
    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -2.0), ("▁the", -2.0)]
    pieces += [(c, -4.0) for c in "thes</>"]
    engine = Engine(models.Unigram(pieces, unk_id=2))
    engine.pre_tokenizer = pre_tokenizers.Metaspace()
    engine.decoder = decoders.Metaspace()
    engine.add_special_tokens(["<pad>", "</s>", "<unk>", "<extra_id_1>", "<extra_id_0>"])
    engine.enable_truncation(3)
    engine.enable_padding(length=3)
    return engine


def test_a_tokenizer_of_another_program_is_read(tmp_path) -> None:
    _t5_like().save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer.load(tmp_path)
    vocab = tokenizer.vocab
    assert vocab.special == {"[PAD]": 0, "[UNK]": 2, "</s>": 1}
    assert vocab.sentinels.tolist() == [13, 12]  # by their number, wherever they stand
    assert vocab.is_special.sum() == 5
    assert vocab.starts_word.tolist()[3:12] == [True, True] + [False] * 7
    ids = tokenizer.encode("the the the the").tolist()
    assert ids == [4] * 4  # neither cut nor padded
    assert 1 not in tokenizer.encode("the </s>").tolist()
    assert 1 in tokenizer.encode("the </s>", special=True).tolist()
    with pytest.raises(UserError, match=r"\[MASK\]"):
        tokenizer.require(["[MASK]"])


def test_special_tokens_are_found_by_role(tmp_path) -> None:
    engine = Engine(models.WordLevel({"<blank>": 0, "?": 1, "<unk>": 2, "a": 3}, unk_token="?"))
    engine.normalizer = normalizers.NFC()
    engine.add_special_tokens([AddedToken("<blank>", special=True), AddedToken("?", special=True)])
    engine.save(str(tmp_path / "tokenizer.json"))
    config = {"mask_token": {"content": "<blank>"}, "unk_token": "?", "eos_token": None}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    tokenizer = Tokenizer.load(tmp_path)
    assert tokenizer.vocab.special == {"[MASK]": 0, "[UNK]": 1}
    tokenizer.save(tmp_path / "copy")
    again = json.loads((tmp_path / "copy" / "tokenizer_config.json").read_text())
    assert (again["mask_token"], again["unk_token"]) == ("<blank>", "?")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (None, "", "there is no tokenizer.json"),
        ("tokenizer.json", "{", "not a tokenizer that can be read"),
        ("tokenizer.json", '{"model": {"type": "Magic"}}', "not a tokenizer that can be read"),
        ("tokenizer.json", b"\xff\xfe", "not a tokenizer that can be read"),
        ("tokenizer_config.json", "[1", r"tokenizer_config\.json: not valid JSON"),
        ("tokenizer_config.json", '{"pad_token": [1]}', r"tokenizer_config\.json: not a tokenizer"),
    ],
)
def test_missing_and_broken_files_are_named(tmp_path, trained, name, content, message) -> None:
    if name is not None:
        trained["word"].save(tmp_path)
        raw = content if isinstance(content, bytes) else content.encode()
        (tmp_path / name).write_bytes(raw)
        with pytest.raises(UserError, match=r"damaged: .* (cut short|match its checksum)"):
            Tokenizer.load(tmp_path)
        (tmp_path / "manifest.json").unlink()  # as one made elsewhere
    with pytest.raises(UserError, match=message) as error:
        Tokenizer.load(tmp_path)
    assert "\n" not in str(error.value)


def test_a_tokenizer_is_tried_once_in_a_process(
    tmp_path, trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("foreword.text.tokenizer._TRIED", set())
    trained["word"].save(tmp_path)
    with monkeypatch.context() as changed:
        changed.setattr("foreword.text.tokenizer.PROBE", None)
        with pytest.raises(UserError, match="not a tokenizer that can be read"):
            Tokenizer.load(tmp_path)
    Tokenizer.load(tmp_path)
    monkeypatch.setattr("foreword.text.tokenizer.PROBE", None)
    assert Tokenizer.load(tmp_path).pieces == trained["word"].pieces


def test_a_missing_tokenizer_of_a_run_is_to_be_restored(tmp_path) -> None:
    with pytest.raises(UserError, match=r"tokenizer: is missing; restore it from a copy of"):
        Tokenizer.load(tmp_path / "tokenizer", is_part=True)


def _charsmap(text: bytes) -> dict[str, str]:
    """Return a normaliser whose table has an empty trie and this text."""
    data = (4).to_bytes(4, "little") + bytes(4) + text
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(data).decode()}


REPLACED = {"type": "Replace", "pattern": {"String": "a"}, "content": "aaaaaaaaaa"}
WORDS = {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"normalizer": {"type": "Sequence", "normalizers": [REPLACED] * 9}}, "1,000,000,000 char"),
        ({"decoder": {"type": "Sequence", "decoders": [REPLACED] * 3}}, "1,000 characters of one"),
        ({"normalizer": _charsmap(b"a" * 257 + b"\0")}, "257 characters of one"),
        ({"normalizer": _charsmap(b"") | {"precompiled_charsmap": "AAAA"}}, "Cannot parse"),
        ({"normalizer": _charsmap(b"") | {"precompiled_charsmap": "BAAAAAf///8="}}, "out of bound"),
        ({"model": WORDS | {"unk_token": "b"}}, r"Missing \[UNK\] token"),
        ({"model": WORDS | {"vocab": {"a": 1 << 31}}}, "numbers its tokens to 2,147,483,649"),
    ],
)
def test_a_tokenizer_that_fails_or_fills_memory_when_used_is_refused_when_read(
    parts: dict[str, object], message: str, tmp_path, capfd
) -> None:
    state = json.loads(Engine(models.WordLevel({"a": 0}, unk_token="a")).to_str())
    (tmp_path / "tokenizer.json").write_text(json.dumps(state | parts))
    with pytest.raises(UserError, match=message):
        Tokenizer.load(tmp_path)
    assert capfd.readouterr().err == ""  # no panic of the native code
    harmless = {"normalizer": {"type": "Sequence", "normalizers": [REPLACED] * 2}}
    (tmp_path / "tokenizer.json").write_text(json.dumps(state | harmless))
    assert Tokenizer.load(tmp_path).encode("ab").tolist() == [0]


def test_an_unwritable_folder_is_refused(tmp_path, trained) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"tokenizer_config\.json: cannot be written"):
        trained["word"].save(tmp_path / "file")


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        ("word", {"min_count": 1}, "; a vocabulary of 30,000 requested, the text has 111"),
        ("char", {}, "; a vocabulary of 10,000 requested, the text has 112"),
        ("char", {"vocab": 109}, ""),
    ],
)
def test_the_sample_is_summarised(kind: str, settings: dict[str, int], message: str) -> None:
    trainer = kinds.load("text/tokenizers", kind)(**settings)
    trained = trainer.train(["a b c d"] * 300)
    assert training.describe(trained) == f"300 of 300 documents, 2.1 of 2.1 kB{message}"
    engine = Engine.from_str(trained.to_str())
    assert training.describe(Tokenizer(engine)) == ""
