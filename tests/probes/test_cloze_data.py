"""The shipped sentences of suite cloze: their form, their balance, and no answer given away."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from foreword import probes

KINDS = ["trivia", "syntax", "coreference", "topic", "sentiment", "reasoning", "arithmetic"]
LEAST = {"en": 45, "ko": 22}  # items of a kind
BLANK = "___"
LAST_HANGUL, SYLLABLES, FINALS = 0xD7A3, 0xAC00, 28

languages = pytest.mark.parametrize("language", LEAST)


def items(language: str) -> list[dict[str, Any]]:
    file = Path(probes.__file__).parent / "data" / f"cloze_{language}.jsonl"
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def ends_in_a_consonant(word: str) -> bool:
    code = ord(word[-1])
    assert SYLLABLES <= code <= LAST_HANGUL, f"{word}: a particle after it would depend on it"
    return (code - SYLLABLES) % FINALS > 0


@languages
def test_each_item_has_one_blank_one_answer_and_three_to_five_single_words(language: str) -> None:
    for item in items(language):
        assert set(item) in (
            {"kind", "text", "answer", "alternatives"},
            {"kind", "text", "answer", "alternatives", "group"},
        )
        assert item["text"].count(BLANK) == 1 and item["text"] == item["text"].strip()
        options = [item["answer"], *item["alternatives"]]
        assert 3 <= len(item["alternatives"]) <= 5
        assert len(set(options)) == len(options), f"an option occurs twice: {item}"
        assert all(option and option.split() == [option] for option in options)


@languages
def test_each_kind_has_enough_different_items(language: str) -> None:
    found = items(language)
    counts = Counter(item["kind"] for item in found)
    assert list(counts) == KINDS, "kinds are together and in order"
    assert min(counts.values()) >= LEAST[language]
    assert len({item["text"] for item in found}) == len(found)


@languages
def test_no_answer_is_frequent_enough_to_be_guessed(language: str) -> None:
    answers = Counter((item["kind"], item["answer"]) for item in items(language))
    assert max(answers.values()) <= 3


@languages
def test_at_least_half_of_the_blanks_stand_near_the_end(language: str) -> None:
    after = [item["text"].partition(BLANK)[2] for item in items(language)]
    assert sum(len(rest.split()) <= 1 for rest in after) >= len(after) / 2
    assert any(len(rest.split()) > 3 for rest in after)


@languages
def test_half_of_the_sentiments_are_positive(language: str) -> None:
    groups = Counter(i["group"] for i in items(language) if i["kind"] == "sentiment")
    assert groups["positive"] == groups["negative"] == groups.total() / 2


def test_pronouns_of_women_and_men_are_equally_often_the_answer() -> None:
    answers = Counter(i["answer"] for i in items("en") if i["kind"] == "coreference")
    assert sum(answers[word] for word in ("she", "her", "hers", "herself")) == sum(
        answers[word] for word in ("he", "him", "his", "himself")
    )


def test_options_are_in_lower_case_unless_they_are_names() -> None:
    with_names = {"trivia", "coreference", "reasoning", "arithmetic"}  # days and letters, too
    for item in items("en"):
        options = [item["answer"], *item["alternatives"]]
        is_name = {option[0].isupper() for option in options if option != "I"}
        assert len(is_name) == 1, f"names and other words: {item}"
        assert is_name == {False} or item["kind"] in with_names, item


def test_korean_particles_do_not_give_the_answer_away() -> None:
    for item in items("ko"):
        rest = item["text"].partition(BLANK)[2]
        depends = rest[:1] in tuple("을를이가은는과와로라") or rest.startswith(("다.", "으로"))
        if depends:
            options = [item["answer"], *item["alternatives"]]
            assert len({ends_in_a_consonant(option) for option in options}) == 1, item
