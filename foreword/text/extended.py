"""A tokenizer with more tokens than it was trained with.

New pieces: the merging goes on where its training ended, on one's own text. Or special tokens.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import pairwise
from typing import Any

from tokenizers import AddedToken
from tokenizers import Tokenizer as Engine

from foreword.errors import UserError
from foreword.text.sample import Sample, draw
from foreword.text.special import ROLES
from foreword.text.tokenizer import Tokenizer

SAMPLE_BYTES = 20_000_000
LEAST = 2  # times that a pair must occur
LONGEST = 64  # pieces of a word that is looked at
GAIN = 0.01  # by which a new unigram piece is likelier than what it replaces

Word = tuple[int, ...]


@dataclass(frozen=True)
class Extended:
    """A tokenizer and what is new in it.

    Attributes:
        tokenizer: with the new pieces.
        replaced: the old pieces in whose stead each new one stands, by its id.
    """

    tokenizer: Tokenizer
    replaced: Mapping[int, Word]


def extend(tokenizer: Tokenizer, texts: Iterable[str], number: int) -> Extended:
    """Adds `number` pieces: each the most frequent pair of neighbours within words, made one.

    Old pieces keep their ids. A word that holds none of the new pieces is cut as before.

    Args:
        tokenizer: of kind wordpiece, bpe or unigram, whoever made it.
        texts: to learn from; a sample of 20 MB of them is read.
        number: of new pieces.

    Raises:
        UserError: the text is too little, or the tokenizer has no pieces to join.
    """
    if number < 1:
        raise UserError(f"--extend-vocabulary: must be at least 1, got {number}")
    state: dict[str, Any] = json.loads(tokenizer.to_str())
    model = state["model"]
    if model["type"] not in ("WordPiece", "BPE", "Unigram"):
        raise UserError(
            f"--extend-vocabulary: this tokenizer ({model['type']}) does not join pieces; only "
            "wordpiece, bpe and unigram can be extended"
        )
    pieces = tokenizer.pieces
    prefix = model.get("continuing_subword_prefix") or ""
    joins = _Joins(_words(tokenizer, draw(texts, SAMPLE_BYTES)), pieces, prefix)
    learned = joins.learn(number)
    if len(learned) < number:
        raise UserError(
            f"--extend-vocabulary: {number:,} asked, but this text supports only {len(learned):,}; "
            "ask for fewer or give more text"
        )
    _add(state, learned, pieces)
    kind = {**tokenizer.kind, "extended": number}
    found = _like(tokenizer, Engine.from_str(json.dumps(state)), kind)
    return Extended(found, {join.id: join.replaces for join in learned})


def add_special(tokenizer: Tokenizer, names: Sequence[str]) -> Tokenizer:
    """The same with more special tokens behind its own; text is cut as before.

    Args:
        tokenizer: of any kind, whoever made it.
        names: of `foreword.text.special`, none of which it has.

    Raises:
        UserError: its ids have holes, so that there is no telling which are free.
    """
    engine = Engine.from_str(tokenizer.to_str())
    engine.add_special_tokens([AddedToken(name, normalized=False) for name in names])
    pieces = tokenizer.pieces
    for name in names:
        i = engine.token_to_id(name)
        assert i is not None
        if i < len(pieces) and pieces[i]:
            raise UserError(
                f"the tokenizer has no {name}, and none can be added: it has {i:,} tokens, of "
                f"which the last are not numbered through ('{pieces[i]}' is {i:,})"
            )
    return _like(tokenizer, engine, tokenizer.kind)


def _like(tokenizer: Tokenizer, engine: Engine, kind: Mapping[str, Any]) -> Tokenizer:
    """Other parts that do the work, with the special tokens of before."""
    roles = {role: name for role in ROLES if (name := tokenizer.name_of(ROLES[role])) is not None}
    return Tokenizer(engine, roles, kind, tokenizer.sample, tokenizer.vocab.size)


@dataclass(frozen=True)
class _Join:
    """A new piece: its id, its text, the two pieces that it joins, the old ones it replaces."""

    id: int
    text: str
    pair: tuple[str, str]
    replaces: Word


def _words(tokenizer: Tokenizer, sample: Sample) -> Counter[Word]:
    """How often each word occurs that is cut in pieces, as the ids of its pieces."""
    is_special = tokenizer.vocab.is_special
    counts: Counter[Word] = Counter()
    for words in tokenizer.words(sample.texts()):
        counts.update(word for word in words if 1 < len(word) <= LONGEST)
    return Counter({w: n for w, n in counts.items() if not is_special[list(w)].any()})


class _Joins:
    """Joins pairs, most frequent first, and keeps count as it goes.

    Args:
        counts: of words, as ids.
        pieces: text by id.
        prefix: what marks a piece within a word.
    """

    def __init__(self, counts: Counter[Word], pieces: list[str], prefix: str) -> None:
        self._text = dict(enumerate(pieces))
        self._known = set(pieces)
        self._prefix = prefix
        self._next = max(i for i, piece in enumerate(pieces) if piece) + 1
        self._replaces: dict[int, Word] = {}
        self._words = [list(word) for word in counts]
        self._counts = list(counts.values())
        self._pairs: Counter[tuple[int, int]] = Counter()
        self._where: defaultdict[tuple[int, int], set[int]] = defaultdict(set)
        self._touched: set[tuple[int, int]] = set()  # whose count has grown
        for number in range(len(self._words)):
            self._count(number, 1)

    def learn(self, number: int) -> list[_Join]:
        """The joins made: `number`, or as many as the text supports."""
        learned: list[_Join] = []
        heap: list[tuple[int, tuple[int, int]]] = []
        while len(learned) < number:
            for pair in self._touched:
                heappush(heap, (-self._pairs[pair], pair))
            self._touched.clear()
            # The most frequent; of equals the one of the lowest ids, so that it repeats.
            count, pair = heappop(heap) if heap else (0, (0, 0))
            if -count < LEAST:
                break
            if -count != self._pairs[pair]:  # it has become rarer since
                heappush(heap, (-self._pairs[pair], pair))
                continue
            left, right = self._text[pair[0]], self._text[pair[1]]
            text = left + right.removeprefix(self._prefix)
            if text in self._known:  # there already, by other joins
                continue
            learned.append(_Join(self._next, text, (left, right), self._join(pair, text)))
        return learned

    def _join(self, pair: tuple[int, int], text: str) -> Word:
        new = self._next
        self._next += 1
        self._text[new] = text
        self._known.add(text)
        self._replaces[new] = tuple(i for p in pair for i in self._replaces.get(p, (p,)))
        for number in self._where.pop(pair):
            self._count(number, -1)
            self._words[number] = _joined(self._words[number], pair, new)
            self._count(number, 1)
        self._pairs.pop(pair, None)
        return self._replaces[new]

    def _count(self, number: int, sign: int) -> None:
        """Adds the pairs of a word, or takes them away."""
        word, count = self._words[number], sign * self._counts[number]
        for pair in pairwise(word):
            self._pairs[pair] += count
            if sign > 0:
                self._where[pair].add(number)
                self._touched.add(pair)


def _joined(word: list[int], pair: tuple[int, int], new: int) -> list[int]:
    out: list[int] = []
    for i in word:
        if out and (out[-1], i) == pair:
            out[-1] = new
        else:
            out.append(i)
    return out


def _add(state: dict[str, Any], learned: list[_Join], pieces: list[str]) -> None:
    """Puts the new pieces into the model of a `tokenizer.json`."""
    model = state["model"]
    if model["type"] == "Unigram":
        _add_unigram(model["vocab"], learned, pieces)
        return
    model["vocab"] |= {join.text: join.id for join in learned}
    if model["type"] == "BPE":
        are_texts = bool(model["merges"]) and isinstance(model["merges"][0], str)
        model["merges"] += [" ".join(j.pair) if are_texts else list(j.pair) for j in learned]


def _add_unigram(vocab: list[list[Any]], learned: list[_Join], pieces: list[str]) -> None:
    """The same where ids are places in a list and a likelier cut wins."""
    lowest = min(score for _, score in vocab)
    # Special tokens may have ids behind the list.
    behind = range(len(vocab), learned[0].id)
    vocab.extend([pieces[i] or f"<unused_{i}>", lowest] for i in behind)
    scores: dict[str, float] = dict(vocab)
    for join in learned:
        left, right = join.pair
        scores[join.text] = scores[left] + scores[right] + GAIN
        vocab.append([join.text, scores[join.text]])
