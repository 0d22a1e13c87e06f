"""The contract of every fine-tuning task, checked for every file in `tuning/tasks/`."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import pytest

from foreword.settings import kinds
from foreword.tables.examples import Labelled
from foreword.testing.tasks import BAD, GOOD, TASK_CHECKS, reviews
from foreword.tuning.tasks._contract import Task


def tagged_sentences() -> list[Labelled]:
    sentences = [one.text.split() for one in reviews(34, 1)]
    labels = [map(label_of, words) for words in sentences]
    pairs = zip(sentences, labels, strict=True)
    return [Labelled("\n".join(words), "\n".join(tags)) for words, tags in pairs]


def label_of(word: str) -> str:
    return "telling" if word in GOOD + BAD else "other"


def questions() -> list[Labelled]:
    options = json.dumps(["", GOOD[0], BAD[0]])
    return [one._replace(pair=options, label=str(n % 2)) for n, one in enumerate(reviews(34, 1))]


def passages() -> list[Labelled]:
    made = []
    for n, one in enumerate(reviews(34, 1)):
        answer = one.text.split()[0]
        label = json.dumps([[answer, 0]] if n % 3 else [])
        made.append(one._replace(label=label, pair="what"))
    return made


def pairs() -> list[Labelled]:
    return [one._replace(label="", pair=f"{one.text} today") for one in reviews(34, 1)]


def conversations() -> list[Labelled]:
    return [
        Labelled(json.dumps([["user", one.text], ["assistant", one.text.split()[0]]]), "1")
        for one in reviews(34, 1)
    ]


def preferences() -> list[Labelled]:
    return [
        Labelled(json.dumps([["user", one.text]]), one.text.split()[0], "we saw")
        for one in reviews(34, 1)
    ]


# Of tasks that read no plain texts, or not one alone.
EXAMPLES = {
    "tag": tagged_sentences,
    "choice": questions,
    "span": passages,
    "embed": pairs,
    "chat": conversations,
    "prefer": preferences,
}


@pytest.mark.product
@pytest.mark.parametrize("kind", kinds.names("tuning/tasks"))
@pytest.mark.parametrize("check", TASK_CHECKS, ids=lambda check: check.__name__)
def test_every_task_keeps_the_contract(
    check: Callable[[Task, Sequence[Labelled]], None], kind: str
) -> None:
    examples = EXAMPLES.get(kind, lambda: reviews(34, 1))()
    check(kinds.load("tuning/tasks", kind)(), examples)
