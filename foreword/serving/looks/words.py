"""Words in their sentences, what is near them, and analogies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from foreword.errors import TooLongError, UserError
from foreword.evaluation import states
from foreword.evaluation.states import TextStates
from foreword.interop.word_table import word_table
from foreword.probes._words import read_words
from foreword.runs.trained_model import NEURAL
from foreword.serving.bodies import Body
from foreword.serving.looks._look import Compute, Few, Look, within
from foreword.serving.served import Served
from foreword.settings.ranges import (
    Count,
    CountOrZero,
)
from foreword.types import Array
from foreword.vectors.table import WordTable, to_unit_length

MOST_SENTENCES = 64  # of others, that a word is compared with


@dataclass(frozen=True, kw_only=True)
class WordBody(Body):
    """A word in its sentence, and what is near it.

    Attributes:
        text: the sentence.
        start: the word's first character.
        stop: the character after its last.
        others: sentences whose words it is compared with, beside its own and the shipped ones.
        top: nearest words to name.
    """

    text: str
    start: CountOrZero
    stop: Count
    others: tuple[str, ...] = ()
    top: Few = 8


@dataclass(frozen=True)
class _Place:
    """A word somewhere: its sentence, its characters, and its vectors by layer."""

    text: str
    start: int
    stop: int
    layers: tuple[Array, ...]

    @property
    def row(self) -> dict[str, Any]:
        return {
            "word": self.text[self.start : self.stop],
            "before": self.text[: self.start],
            "after": self.text[self.stop :],
        }


def _word(served: Served, body: WordBody) -> Compute:
    if (
        not body.start < body.stop <= len(body.text)
        or not body.text[body.start : body.stop].strip()
    ):
        raise UserError("start: start and stop must hold a word of the text")
    _check(served, body.text, body.others)
    word = body.text[body.start : body.stop]

    def compute() -> dict[str, Any]:
        read = _read(served, [body.text, *body.others])
        own = [p for p in read if p.text == body.text]
        here = [p for p in own if p.start < body.stop and p.stop > body.start]
        if not here:
            raise UserError("start: there is no word there")
        bank = [
            p for p in [*read, *_shipped(served)] if (p.text, p.start) != (body.text, here[0].start)
        ]
        layers = [
            _nearest(vector, [p.layers[n] for p in bank], bank, body.top)
            for n, vector in enumerate(here[0].layers)
        ]
        alone = _table(served).nearest(word, body.top)
        same = [p for p in bank if p.text == body.text]
        return {
            "word": word,
            "alone": [asdict(near) for near in alone],
            "layers": layers,
            "same_text": [
                p.row
                | {"start": p.start, "cosines": [_cosine(a, b) for a, b in _pairs(here[0], p)]}
                for p in same
            ],
        }

    return compute


def _check(served: Served, text: str, others: Sequence[str]) -> None:
    """Check the length of sentences that are read.

    Raises:
        UserError: there are too many, or too long ones.
    """
    if len(others) > MOST_SENTENCES:
        raise TooLongError(f"others: at most {MOST_SENTENCES} sentences, got {len(others)}")
    for one in (text, *others):
        within(served, one)


def _read(served: Served, texts: Sequence[str]) -> list[_Place]:
    """Return the words of some sentences, each sentence read once."""
    some = [text for text in dict.fromkeys(texts) if text.strip()]
    pairs = zip(some, states.text_states(served.trained, some), strict=True)
    return [place for pair in pairs for place in _places(*pair)]


def _pairs(one_place: _Place, other: _Place) -> list[tuple[Array, Array]]:
    return list(zip(one_place.layers, other.layers, strict=True))


def _cosine(a: Array, b: Array) -> float:
    return float(np.clip(to_unit_length(a) @ to_unit_length(b), -1, 1))


def _nearest(
    vector: Array, vectors: Sequence[Array], bank: Sequence[_Place], top: int
) -> list[dict[str, Any]]:
    if not bank:
        return []
    cosines = np.clip(to_unit_length(np.stack(vectors)) @ to_unit_length(vector), -1, 1)
    order = np.argsort(-cosines, kind="stable")[:top]
    return [bank[n].row | {"cosine": float(cosines[n])} for n in order.tolist()]


def _places(text: str, read: TextStates) -> list[_Place]:
    """Return the words of a text with their vectors: the means over their pieces."""
    places, start = [], 0
    for word in text.split():
        start = text.index(word, start)
        letters = [n for n, c in enumerate(word) if c.isalnum()]
        if letters:
            begin, stop = start + letters[0], start + letters[-1] + 1
            where = read.tokens_of(begin, stop)
            if len(where):
                layers = read.layers or (read.alone,)
                means = tuple(layer[where].mean(0).astype(np.float64) for layer in layers)
                places.append(_Place(text, begin, stop, means))
        start += len(word)
    return places


def _shipped(served: Served) -> list[_Place]:
    """Return the words of the shipped sentences, each word with two senses; computed once."""
    sentences = (s.text for word in read_words("english") for s in word.sentences)
    return list(served.kept("shipped", lambda: _read(served, list(sentences))))


def _table(served: Served) -> WordTable:
    model = served.trained
    table: WordTable = served.kept("table", lambda: word_table(model.model, model.tokenizer))
    return table


@dataclass(frozen=True, kw_only=True)
class AnalogyBody(Body):
    """A question "a is to b as c is to which word?".

    Attributes:
        a: a word.
        b: a word.
        c: a word.
        text: a sentence; the question is asked of words in their sentences too.
        others: sentences beside it and the shipped ones.
        top: nearest words to name.
    """

    a: str
    b: str
    c: str
    text: str | None = None
    others: tuple[str, ...] = ()
    top: Few = 8


def _analogy(served: Served, body: AnalogyBody) -> Compute:
    text = body.text
    if text is not None:
        _check(served, text, body.others)

    def compute() -> dict[str, Any]:
        found = _table(served).analogy(body.a, body.b, body.c, body.top)
        row = {"nearest": [asdict(near) for near in found]}
        return row if text is None else row | _in_context(served, body, [text, *body.others])

    return compute


def _in_context(served: Served, body: AnalogyBody, texts: Sequence[str]) -> dict[str, Any]:
    """Return the places nearest to b - a + c after each layer, a word the mean of its places."""
    bank = [*_read(served, texts), *_shipped(served)]
    words = [word.strip().casefold() for word in (body.a, body.b, body.c)]
    of = {word: [p for p in bank if p.row["word"].casefold() == word] for word in words}
    missing = [word for word, places in of.items() if not places]
    if missing:
        return {"layers": [], "missing": missing}
    others = [p for p in bank if p.row["word"].casefold() not in words]
    layers = []
    for n in range(len(bank[0].layers)):
        a, b, c = (
            to_unit_length(np.mean([p.layers[n] for p in of[word]], axis=0)) for word in words
        )
        vectors = [p.layers[n] for p in others]
        layers.append(_nearest(b - a + c, vectors, others, body.top))
    return {"layers": layers, "missing": []}


def _has_vectors(served: Served) -> None:
    if served.trained.is_count_based:
        raise served.trained.unable("has no vectors", NEURAL)


WORD = Look(WordBody, _word, _has_vectors, "Name the words near a word, alone and in a text")
ANALOGY = Look(
    AnalogyBody, _analogy, _has_vectors, "Complete an analogy by word vectors, alone and in a text"
)
