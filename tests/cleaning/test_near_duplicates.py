"""Near duplicates: copies are found as often as the settings say, and nothing else is dropped."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("datatrove")

from datatrove.data import Document

from foreword.cleaning.recipe import load_cleaning
from foreword.cleaning.steps.near_duplicates import NearDuplicates

DRAW = random.Random(1)
WORDS = ["".join(DRAW.choices("aeioubcdfghklmnprst", k=DRAW.randint(2, 9))) for _ in range(3000)]
FREQUENCIES = [1 / (10 + rank) for rank in range(len(WORDS))]
TASKS = 3


@dataclass
class Texts:
    """What a task reads: a third of the texts."""

    texts: Sequence[str]

    def run(self, data: Any, rank: int, world_size: int) -> Iterator[Document]:
        size = -(-len(self.texts) // TASKS)
        for number in range(rank * size, min((rank + 1) * size, len(self.texts))):
            yield Document(self.texts[number], str(number))


def story(draw: random.Random) -> list[str]:
    return draw.choices(WORDS, FREQUENCIES, k=draw.randint(150, 250))


def copied(words: Sequence[str], share: float, draw: random.Random) -> list[str]:
    """Return a text of which a share of the words is replaced."""
    places = set(draw.sample(range(len(words)), round(share * len(words))))
    return [draw.choice(WORDS) if n in places else word for n, word in enumerate(words)]


def kept(step: NearDuplicates, texts: Sequence[str], folder: Path) -> tuple[set[int], Any]:
    """Return the numbers of the texts that stay, and what the report says of the step."""
    read = Texts(texts)
    for rank in range(TASKS):
        step.signer(folder).run(read.run(None, rank, TASKS), rank, TASKS)
    for search, tasks in step.searches(folder, read, TASKS):
        for rank in range(tasks):
            search.run(None, rank, tasks)
    left = [
        document.id
        for rank in range(TASKS)
        for document in step.remover(folder, None)(read.run(None, rank, TASKS), rank, TASKS)
    ]
    return set(map(int, left)), step.facts(folder)


@pytest.mark.full
def test_copies_with_replaced_words_are_found_as_often_as_expected(tmp_path: Path) -> None:
    draw = random.Random(2)
    stories = [story(draw) for _ in range(250)]
    shares = [0.05 + 0.1 * number / 199 for number in range(200)]
    copies = [copied(s, share, draw) for s, share in zip(stories, shares, strict=False)]
    short = [[], *[draw.choices(WORDS, k=3) for _ in range(5)]]
    texts = [" ".join(words) for words in [*stories, *copies, *short]]
    for name, lowest, highest in (("gopher", 10, 40), ("copies", 195, 200)):
        (step,) = (s for s in load_cleaning(name).clean.steps if isinstance(s, NearDuplicates))
        left, facts = kept(step, texts, tmp_path / name)
        assert {*range(250), *range(450, 456)} < left, name
        assert lowest <= len(texts) - len(left) <= highest, name
        found = {row["words replaced"]: row["found"] for row in facts["expected"]}
        expected = sum(found[share] for share in (0.05, 0.1, 0.15)) / 3
        assert (len(texts) - len(left)) / 200 == pytest.approx(expected, abs=0.1)


def test_what_is_dropped_has_its_like_among_what_stays(tmp_path: Path) -> None:
    """In a chain of texts, each like the next, the first and the third have little in common."""
    draw = random.Random(3)
    chain = [" ".join(WORDS[start : start + 200]) for start in (0, 50, 100)]
    step = NearDuplicates(buckets=60, hashes=2)
    left, facts = kept(step, [*chain, " ".join(story(draw))], tmp_path / "chain")
    assert left == {0, 2, 3} and facts["largest_group"] == 2
    left, facts = kept(step, [chain[1], chain[0], chain[2]], tmp_path / "middle")
    assert left == {0} and facts["largest_group"] == 3


def test_texts_that_are_unlike_are_not_dropped_whatever_the_buckets_say(tmp_path: Path) -> None:
    boilerplate = " ".join(WORDS[:60])
    draw = random.Random(4)
    texts = [f"{boilerplate} {' '.join(story(draw))}" for _ in range(12)]
    step = NearDuplicates(buckets=40, hashes=1)
    left, facts = kept(step, texts, tmp_path / "compared")
    assert left == set(range(12)) and facts["largest_group"] == 1
    assert facts["details"]["pairs compared and unlike"] == 12 * 11 / 2
    unchecked = NearDuplicates(buckets=40, hashes=1, min_similarity=0)
    assert kept(unchecked, texts, tmp_path / "joined")[0] == {0}


def test_a_corpus_without_duplicates_has_nothing_to_compare(tmp_path: Path) -> None:
    left, facts = kept(NearDuplicates(), ["", "three words only", "", "other"], tmp_path)
    assert left >= {1, 3} and facts["details"] == {}
