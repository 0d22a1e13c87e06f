from __future__ import annotations

import random

import pytest

from foreword import kinds
from foreword.text.tokenizer import Tokenizer

SETTINGS = {
    "wordpiece": {"vocab": 320},
    "bpe": {"vocab": 560},
    "unigram": {"vocab": 240},
    "word": {},
    "char": {},
}
SENTENCES = [
    "The lowest house stands by the newest and the widest road. Is it the oldest? No, he said.",
    "The man and the woman walked down the road to the house; they walked slow, and said little.",
    "In the house the woman read the newest book (the man had read it).\nIt was slow reading, 3.1!",
    'Dr. Smith said: "The road is wide." Then the house was empty.\n\nThe end of a book: [x] <y>.',
    "문학은 언어를 예술적 표현의 제재로 삼아 새로운 의미를 창출한다.",
    "문학은 예술이다. 언어는 문학의 제재이다.",
]


def _invented() -> list[str]:
    """Words enough to fill a small vocabulary: stems, prefixes and endings."""
    rng = random.Random(0)
    stems = [
        "".join(rng.choices("aeiou", k=1) + rng.choices("bdfgklmnprst", k=2)) for _ in range(60)
    ]
    words = [
        "".join((rng.choice(("", "re", "un")), a, rng.choice(("er", "ing", "s")))) for a in stems
    ]
    return [" ".join(rng.choices(words, k=12)) + "." for _ in range(60)]


CORPUS = SENTENCES * 6 + _invented()


@pytest.fixture(scope="session")
def trained() -> dict[str, Tokenizer]:
    """A small tokenizer of every kind there is."""
    return {
        kind: kinds.load("text/tokenizers", kind)(**SETTINGS.get(kind, {})).train(iter(CORPUS))
        for kind in kinds.names("text/tokenizers")
    }


@pytest.fixture(params=kinds.names("text/tokenizers"))
def tokenizer(request: pytest.FixtureRequest, trained: dict[str, Tokenizer]) -> Tokenizer:
    return trained[request.param]
