"""Words and sentences, as the rules of filters count them."""

from __future__ import annotations

import pytest

pytest.importorskip("datatrove")

from foreword.cleaning.words import WORDS


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("It's well-known, don't you see?", "It 's well - known , do n't you see ?"),
        ("Dr. Who of the U.S. paid 1,000.50...", "Dr. Who of the U.S. paid 1,000.50 ..."),
        ("See https://a.example/x?y=1 (now).", "See https://a.example/x?y=1 ( now ) ."),
        ("In 1990–2000, 50% of AT&T's $5m.", "In 1990–2000 , 50 % of AT&T 's $ 5 m ."),
        ('"He left," said J. Doe.', '" He left , " said J. Doe .'),
        ("either/or 1/2 and 3-4 at 12:30.", "either / or 1/2 and 3 - 4 at 12:30 ."),
        ("강과 마을.", "강과 마을 ."),
        ("我们去。", "我 们 去 。"),
        ("ฉันรักที่นี่", "ฉั น รั ก ที่ นี่"),
        ("वह किताबें-वाली, क्या.", "वह किताबें - वाली , क्या ."),
    ],
)
def test_words_are_split_as_in_english_and_by_character_without_spaces(
    text: str, words: str
) -> None:
    assert WORDS.word_tokenize(text) == words.split(" ")


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("One. Two! Three?", 3),
        ("Mr. Smith saw J. Jones in the U.S. today.", 1),
        ('He said "Go." Then he went', 2),
        ("No end", 1),
        ("一。二。", 2),
        ("  ", 0),
    ],
)
def test_sentences_are_counted(text: str, count: int) -> None:
    assert len(WORDS.span_tokenize(text)) == count
