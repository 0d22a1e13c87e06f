"""Gopher's repetition rules, faster for texts that plainly do not repeat themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
from datatrove.pipeline.filters import GopherRepetitionFilter
from datatrove.utils.text import split_into_words

from foreword.cleaning.steps._contract import Verdict
from foreword.cleaning.words import WORDS
from foreword.types import Array


class Repetition(GopherRepetitionFilter):  # type: ignore[misc]
    """datatrove's filter, asked only about texts that may repeat themselves.

    datatrove counts the n-grams of nine lengths one after the other. Here the words that lie in any
    repeated 5-gram are found first, all at once; those in longer ones are among them. If they are
    no larger a share of the text than the smallest threshold, and no shorter n-gram is frequent
    enough, datatrove would keep the text. Anything else it decides itself.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(language=WORDS, **settings)
        self._lines = GopherRepetitionFilter(
            language=WORDS, **{**settings, "top_n_grams": (), "dup_n_grams": ()}
        )

    def filter(self, document: Any) -> Verdict:
        """Return whether to keep a document, or False and why not."""
        by_lines: Verdict = self._lines.filter(document)
        if by_lines is not True:
            return by_lines
        words, size = split_into_words(document.text, WORDS), len(document.text)
        if words and self._is_plainly_kept(words, size):
            return True
        verdict: Verdict = super().filter(document)
        return verdict

    def _is_plainly_kept(self, words: list[str], size: int) -> bool:
        """Return whether no rule about n-grams can drop a text of `size` characters."""
        vocabulary: dict[str, int] = {}
        ids = np.array([vocabulary.setdefault(word, len(vocabulary)) for word in words])
        lengths = np.array([len(word) for word in words])
        ends = np.concatenate([[0], np.cumsum(lengths)])
        most_top, most_repeated = dict(self.top_n_grams), dict(self.dup_n_grams)
        longest = max([1, *most_top, *([min(most_repeated)] if most_repeated else [])])
        grams = ids  # the number of the n-gram at each word
        for n in range(2, longest + 1):
            if len(grams) < 2:
                return True
            pairs = grams[:-1] * len(words) + ids[n - 1 :]
            _, first, grams, counts = np.unique(
                pairs, return_index=True, return_inverse=True, return_counts=True
            )
            if n in most_top:  # with the spaces between words, as datatrove counts
                characters = ends[first + n] - ends[first] + n - 1
                if np.max(characters * counts) / size > most_top[n]:
                    return False
            if most_repeated and n == min(most_repeated):
                is_repeated = first[grams] < np.arange(len(grams))
                share = _covered(is_repeated, n, lengths) / size
                if share > min(most_repeated.values()):
                    return False
        return True


def _covered(is_repeated: Array, n: int, lengths: Array) -> int:
    """Return the characters of the words in repeated n-grams, given where those begin."""
    covers = np.zeros(len(lengths) + 1, np.int64)
    starts = np.flatnonzero(is_repeated)
    np.add.at(covers, starts, 1)
    np.add.at(covers, starts + n, -1)
    return int(lengths[np.cumsum(covers[:-1]) > 0].sum())
