"""Words in every script."""

from __future__ import annotations

import pytest

from foreword.text.words import spaced, split


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The cat's U.S. don't 3.5 a_b co-op", "the cat s u s don t 3 5 a b co op"),
        ("Naïve cafe\u0301 İzmir", "naïve café i̇zmir"),
        ("किताब और हिन्दी।", "किताब और हिन्दी"),
        ("مُحَمَّدٌ می\u200cخواهم؟", "مُحَمَّدٌ می\u200cخواهم"),
        ("தமிழ்-மொழி", "தமிழ் மொழி"),
        ("ที่นี่ ok", "ที่ นี่ ok"),
        ("我们去ABC。𠮷か\u3099", "我 们 去 abc 𠮷 が"),
        ("영화가 좋다", "영화가 좋다"),
        ("\u0301 !? 👩\u200d👧", ""),
    ],
)
def test_a_word_keeps_its_marks_and_letters_without_spaces_are_words(text: str, words: str) -> None:
    assert split(text) == words.split()


def test_spaces_are_put_around_letters_without_spaces_alone() -> None:
    assert spaced("don't, 3.5! किताब") == "don't, 3.5! किताब"
    assert spaced("去ABC。").split() == ["去", "ABC。"]
