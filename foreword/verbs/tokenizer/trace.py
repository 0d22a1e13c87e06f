"""`foreword tokenizer trace`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from foreword.display.results import Facts, Output, ResultTable
from foreword.errors import UserError
from foreword.settings.ranges import CountOrZero
from foreword.verbs._contract import Flag
from foreword.verbs.tokenizer._contract import TokenizerVerb

EXAMPLE = ("low:5", "lower:2", "newest:6", "widest:3")


@dataclass(frozen=True)
class Trace(TokenizerVerb):
    """Watch byte-pair encoding learn from a small dictionary, merge by merge.

    Attributes:
        words: words with their counts: low:5 lower:2 newest:6 widest:3.
        segment: a word to segment with the merges learned; repeatable.
        merges: maximum number of merges.
    """

    words: Annotated[Sequence[str], Flag(is_argument=True, metavar="WORD:COUNT...")] = EXAMPLE
    segment: Sequence[str] = ()
    merges: CountOrZero = 10

    def __call__(self) -> Output:
        from foreword.text import trace as bpe

        counts = _parse_counts(" ".join(self.words or EXAMPLE).split())
        unseen = self.segment or (["lowest"] if counts == _parse_counts(EXAMPLE) else [])
        steps = bpe.learn(counts, self.merges)
        pieces = {word: bpe.segment(word, steps) for word in unseen}
        start = tuple(tuple(word) for word in counts)
        letters = {letter for word in start for letter in word}
        rows: list[dict[str, Any]] = [_row(0, "", "", "(letters)", len(letters), start)]
        for n, step in enumerate(steps, 1):
            pair = " ".join(step.pair)
            rows.append(_row(n, pair, step.count, step.symbol, step.vocab, step.words))
        names = ("pair", "count", "symbol", "vocab", "words")
        content = {
            "merges": [{name: getattr(step, name) for name in names} for step in steps],
            "segmented": pieces,
        }
        segmented = Facts({word: " ".join(parts) for word, parts in pieces.items()})
        return Output([ResultTable(rows), segmented], content)


def _row(
    step: int, pair: str, count: Any, symbol: str, vocab: int, words: Iterable[Iterable[str]]
) -> dict[str, Any]:
    spaced = "  ".join("·".join(word) for word in words)
    return {
        "step": step, "pair": pair, "count": count, "new symbol": symbol, "vocabulary": vocab,
        "words": spaced,
    }  # fmt: skip


def _parse_counts(words: Sequence[str]) -> dict[str, int]:
    """Return `low:5` as {"low": 5}; a word without a count occurs once."""
    counts: dict[str, int] = {}
    for argument in words:
        word, colon, number = argument.rpartition(":")
        if not colon:
            word, number = argument, "1"
        if not word or not (number.isascii() and number.isdigit()) or int(number) < 1:
            raise UserError(f"'{argument}': expected WORD:COUNT, such as low:5")
        counts[word] = counts.get(word, 0) + int(number)
    return counts
