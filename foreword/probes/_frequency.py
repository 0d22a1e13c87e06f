"""How often words occur in the text that a model was trained on."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from foreword.data.shards import Shards
from foreword.errors import UserError
from foreword.evaluation.heldout import shards_of
from foreword.runs.trained_model import TrainedModel

MAX_COUNTED = 10_000_000  # tokens of training text read
Word = tuple[int, ...]  # its tokens


def training_text(prompted: TrainedModel) -> Shards | None:
    """Return the text that a model was trained on; None if it is not there."""
    if prompted.source is None:
        return None
    try:
        return shards_of(prompted, prompted.run).train
    except UserError:
        return None


def occurrences(text: Shards, words: Iterable[Word]) -> dict[Word, int]:
    """Return how often each word occurs in a text, as exactly these tokens.

    Args:
        text: the text; at most `MAX_COUNTED` of its tokens are read.
        words: the words, none of them empty.
    """
    tokens = text.tokens[:MAX_COUNTED].astype(np.int64)
    words = set(words)
    # Where each word's first token stands, sorted by token.
    firsts = np.unique([word[0] for word in words])
    is_first = np.zeros(max(firsts.max(), tokens.max(initial=0)) + 1, dtype=bool)
    is_first[firsts] = True
    where = np.flatnonzero(is_first[tokens])
    where = where[np.argsort(tokens[where], kind="stable")]
    counts = {}
    sorted_firsts = tokens[where]
    for word in words:
        first, last = np.searchsorted(sorted_firsts, [word[0], word[0] + 1])
        at = where[first:last]
        at = at[at <= len(tokens) - len(word)]
        for distance, token in enumerate(word[1:], 1):
            at = at[tokens[at + distance] == token]
        counts[word] = len(at)
    return counts
