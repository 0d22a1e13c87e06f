"""How words become pieces, for study, not for speed: byte-pair encoding on a small dictionary, and
the cuts of any tokenizer.

low:5 lower:2 newest:6 widest:3

e s -> es, es t -> est, l o -> lo, lo w -> low, n e -> ne, ne w -> new, new est -> newest, ...
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

Pair = tuple[str, str]


@dataclass(frozen=True)
class Merge:
    """One step: the most frequent pair becomes one symbol.

    Attributes:
        pair: the two symbols.
        count: their number of adjacent occurrences in the dictionary.
        vocab: size of the vocabulary after the merge.
        words: the segmented words of the dictionary after the merge.
    """

    pair: Pair
    count: int
    vocab: int
    words: tuple[tuple[str, ...], ...]

    @property
    def symbol(self) -> str:
        """The new symbol."""
        return "".join(self.pair)


def learn(counts: Mapping[str, int], merges: int = 10) -> list[Merge]:
    """Learn up to `merges` merges from words and their counts.

    Sennrich et al. 2016, Algorithm 1, whose example makes ten merges. Among equally frequent pairs
    the first one met wins, with the words read in the given order, left to right. A pair that
    occurs only once is not merged.

    *Differs from the paper:* no symbol marks the end of a word.
    """
    words = [tuple(word) for word in counts]
    vocab = len({symbol for word in words for symbol in word})
    steps: list[Merge] = []
    while len(steps) < merges:
        frequency: dict[Pair, int] = {}
        for word, count in zip(words, counts.values(), strict=True):
            for pair in pairwise(word):
                frequency[pair] = frequency.get(pair, 0) + count
        best = max(frequency, key=frequency.__getitem__, default=None)  # the first of the highest
        if best is None or frequency[best] < 2:
            break
        words = [_merge(word, best, "".join(best)) for word in words]
        vocab += 1
        steps.append(Merge(best, frequency[best], vocab, tuple(words)))
    return steps


def segment(word: str, steps: Sequence[Merge]) -> tuple[str, ...]:
    """Segment `word`, seen or not, by the merges in the order they were learned."""
    symbols = tuple(word)
    for step in steps:
        symbols = _merge(symbols, step.pair, step.symbol)
    return symbols


def _merge(symbols: tuple[str, ...], pair: Pair, made: str) -> tuple[str, ...]:
    """Return `symbols` with each `pair`, from the left, merged into the symbol `made`."""
    merged: list[str] = []
    i = 0
    while i < len(symbols):
        if symbols[i : i + 2] == pair:
            merged.append(made)
            i += 2
        else:
            merged.append(symbols[i])
            i += 1
    return tuple(merged)


# -- the cuts of a tokenizer -----------------------------------------------------------------------

MOST_LETTERS = 64  # of a word whose steps are shown
RIVALS = 4  # segmentations of a word that are compared


@dataclass(frozen=True)
class CutStep:
    """A step on the way from a word to its pieces.

    Attributes:
        pieces: the word's pieces after it.
        made: the piece that it made; "" if it is a whole segmentation.
        value: of a merge, its place in the order of learning, from 1; of the longest piece, how
            many longer ones the vocabulary lacks; of a segmentation, its log-probability in nats.
    """

    pieces: tuple[str, ...]
    made: str
    value: float


@dataclass(frozen=True)
class WordCut:
    """How a word was cut.

    Attributes:
        word: the word, as the tokenizer normalised and marked it.
        pieces: its pieces.
        way: `merges` of letters (BPE), `longest` piece first (WordPiece), `likeliest` segmentation
            (unigram), or `whole`.
        steps: the merges, the pieces found, or the likeliest segmentations, best first.
    """

    word: str
    pieces: tuple[str, ...]
    way: str
    steps: tuple[CutStep, ...] = ()

    def shown(self, shown: Callable[[str], str]) -> WordCut:
        """Return the same with readable pieces."""
        steps = (CutStep(tuple(map(shown, s.pieces)), shown(s.made), s.value) for s in self.steps)
        return WordCut(shown(self.word), tuple(map(shown, self.pieces)), self.way, tuple(steps))


class Cutter:
    """Retraces the cuts of a tokenizer.

    Args:
        model: the model of its `tokenizer.json`.
    """

    def __init__(self, model: Mapping[str, Any]) -> None:
        self._model, vocab = model, model["vocab"]
        self._scores: dict[str, float] = {}
        self._ranks: dict[Pair, int] = {}
        ways: dict[str, tuple[str, Callable[[str], list[CutStep]]]] = {
            "BPE": ("merges", self._merges),
            "WordPiece": ("longest", self._longest),
            "Unigram": ("likeliest", self._likeliest),
        }
        self._way, self._steps = ways.get(model["type"], ("whole", lambda word: []))
        if self._way == "merges":
            pairs = (m if isinstance(m, list) else m.split(" ") for m in model["merges"])
            self._ranks = {(a, b): n for n, (a, b) in enumerate(pairs, 1)}
        if self._way == "likeliest":
            self._scores = dict(vocab)

    def cut(self, word: str, pieces: tuple[str, ...]) -> WordCut:
        """Return how a word became its pieces; without steps where they lead elsewhere.

        That is so of unknown characters, of words kept whole, and of very long ones.
        """
        steps = self._steps(word) if len(word) <= MOST_LETTERS else []
        end = steps[0 if self._way == "likeliest" else -1].pieces if steps else ()
        return WordCut(word, pieces, self._way, tuple(steps) if end == pieces else ())

    def _merges(self, word: str) -> list[CutStep]:
        before, after = (
            self._model.get(name) or ""
            for name in ("continuing_subword_prefix", "end_of_word_suffix")
        )
        symbols = tuple(before * (n > 0) + letter for n, letter in enumerate(word))
        symbols = (*symbols[:-1], symbols[-1] + after)
        steps = [CutStep(symbols, "", 0)]
        while pairs := [pair for pair in pairwise(symbols) if pair in self._ranks]:
            best = min(pairs, key=self._ranks.__getitem__)
            made = best[0] + best[1].removeprefix(before)
            symbols = _merge(symbols, best, made)
            steps.append(CutStep(symbols, made, self._ranks[best]))
        return steps

    def _longest(self, word: str) -> list[CutStep]:
        prefix, vocab = self._model["continuing_subword_prefix"], self._model["vocab"]
        steps, pieces, start = list[CutStep](), tuple[str, ...](), 0
        while start < len(word):
            found = [
                prefix * (start > 0) + word[start:stop] for stop in range(len(word), start, -1)
            ]
            at = next((n for n, piece in enumerate(found) if piece in vocab), None)
            if at is None:
                return []
            pieces += (found[at],)
            start = len(word) - at
            steps.append(CutStep(pieces, found[at], at))
        return steps

    def _likeliest(self, word: str) -> list[CutStep]:
        best: list[list[tuple[float, tuple[str, ...]]]] = [[(0.0, ())]]
        for stop in range(1, len(word) + 1):
            ways = [
                (total + self._scores[word[start:stop]], (*pieces, word[start:stop]))
                for start in range(stop)
                if word[start:stop] in self._scores
                for total, pieces in best[start]
            ]
            best.append(sorted(ways, key=lambda way: -way[0])[:RIVALS])
        return [CutStep(pieces, "", total) for total, pieces in best[-1] if pieces]
