"""Extension of a tokenizer: new pieces, merged on one's own text, or new special tokens."""

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
from foreword.text.sample import Sample, draw_sample
from foreword.text.special import ROLES
from foreword.text.tokenizer import Tokenizer

SAMPLE_BYTES = 20_000_000
LEAST = 2  # the least count of a pair to merge
LONGEST = 64  # pieces; longer words are ignored
GAIN = 0.01  # added to a new unigram piece's log-probability over that of its parts

Word = tuple[int, ...]


@dataclass(frozen=True)
class Extended:
    """An extended tokenizer.

    Attributes:
        tokenizer: the tokenizer with the new pieces.
        replaced: by the id of each new piece, the old pieces that it replaces.
    """

    tokenizer: Tokenizer
    replaced: Mapping[int, Word]


def extend(tokenizer: Tokenizer, texts: Iterable[str], number: int) -> Extended:
    """Add `number` pieces, each the merge of the most frequent adjacent pair within words.

    Old pieces keep their ids. A word without any of the new pieces is segmented as before.

    Args:
        tokenizer: a tokenizer of kind wordpiece, bpe or unigram, from anywhere.
        texts: training text; a sample of 20 MB is used.
        number: number of new pieces.

    Raises:
        UserError: there is too little text, or the tokenizer has no pieces to merge.
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
    joins = _Joins(_words(tokenizer, draw_sample(texts, SAMPLE_BYTES)), pieces, prefix)
    learned = joins.learn(number)
    if len(learned) < number:
        raise UserError(
            f"--extend-vocabulary: {number:,} requested, but this text supports only "
            f"{len(learned):,}; ask for fewer or give more text"
        )
    _add(state, learned, pieces)
    kind = {**tokenizer.kind, "extended": number}
    extended = _with_engine(tokenizer, Engine.from_str(json.dumps(state)), kind)
    return Extended(extended, {join.id: join.replaces for join in learned})


def add_special(tokenizer: Tokenizer, names: Sequence[str]) -> Tokenizer:
    """Return the tokenizer with more special tokens after its own; segmentation is unchanged.

    Args:
        tokenizer: a tokenizer of any kind, from anywhere.
        names: names of `foreword.text.special` that it lacks.

    Raises:
        UserError: its ids have gaps, so the free ones are unknown.
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
    return _with_engine(tokenizer, engine, tokenizer.kind)


def _with_engine(tokenizer: Tokenizer, engine: Engine, kind: Mapping[str, Any]) -> Tokenizer:
    """Return the tokenizer around another engine, with the same special tokens."""
    roles = {role: name for role in ROLES if (name := tokenizer.name_of(ROLES[role])) is not None}
    return Tokenizer(engine, roles, kind, tokenizer.sample, tokenizer.vocab.size)


@dataclass(frozen=True)
class _Join:
    """A new piece: its id, its text, the two pieces it merges, the old pieces it replaces."""

    id: int
    text: str
    pair: tuple[str, str]
    replaces: Word


def _words(tokenizer: Tokenizer, sample: Sample) -> Counter[Word]:
    """Count the words of several pieces, as ids of their pieces."""
    is_special = tokenizer.vocab.is_special
    counts: Counter[Word] = Counter()
    for words in tokenizer.words(sample.texts()):
        counts.update(word for word in words if 1 < len(word) <= LONGEST)
    return Counter({w: n for w, n in counts.items() if not is_special[list(w)].any()})


class _Joins:
    """A merger of pairs, most frequent first, with incremental counts.

    Args:
        counts: counts of words, as ids.
        pieces: text by id.
        prefix: the mark of a piece within a word.
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
        """Return the merges: `number`, or as many as the text supports."""
        learned: list[_Join] = []
        heap: list[tuple[int, tuple[int, int]]] = []
        while len(learned) < number:
            for pair in self._touched:
                heappush(heap, (-self._pairs[pair], pair))
            self._touched.clear()
            # The most frequent pair; ties go to the lowest ids, so the result is reproducible.
            count, pair = heappop(heap) if heap else (0, (0, 0))
            if -count < LEAST:
                break
            if -count != self._pairs[pair]:  # it has become rarer since
                heappush(heap, (-self._pairs[pair], pair))
                continue
            left, right = self._text[pair[0]], self._text[pair[1]]
            text = left + right.removeprefix(self._prefix)
            if text in self._known:  # already a piece, by other merges
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
        """Add the pairs of a word, or subtract them."""
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
    """Add the new pieces to the model of a `tokenizer.json`."""
    model = state["model"]
    if model["type"] == "Unigram":
        _add_unigram(model["vocab"], learned, pieces)
        return
    model["vocab"] |= {join.text: join.id for join in learned}
    if model["type"] == "BPE":
        are_texts = bool(model["merges"]) and isinstance(model["merges"][0], str)
        model["merges"] += [" ".join(j.pair) if are_texts else list(j.pair) for j in learned]


def _add_unigram(vocab: list[list[Any]], learned: list[_Join], pieces: list[str]) -> None:
    """Add them to a unigram model, where ids are indices and the likeliest segmentation wins."""
    lowest = min(score for _, score in vocab)
    # Special tokens may have ids after the list.
    gap = range(len(vocab), learned[0].id)
    vocab.extend([pieces[i] or f"<unused_{i}>", lowest] for i in gap)
    scores: dict[str, float] = dict(vocab)
    for join in learned:
        left, right = join.pair
        scores[join.text] = scores[left] + scores[right] + GAIN
        vocab.append([join.text, scores[join.text]])
