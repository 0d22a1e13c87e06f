"""How often words occur in the text that a model was trained on."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from foreword.data.shards import Shards
from foreword.errors import UserError
from foreword.evaluation.heldout import shards_of
from foreword.evaluation.prompting import PromptedModel

MAX_COUNTED = 10_000_000  # tokens of training text read
Word = tuple[int, ...]  # its tokens


def training_text(prompted: PromptedModel) -> Shards | None:
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
        text: of which at most `MAX_COUNTED` tokens are read.
        words: none of them empty.
    """
    tokens = text.tokens[:MAX_COUNTED]
    found = {}
    for word in set(words):
        first, *rest = word
        at = np.flatnonzero(tokens[: len(tokens) - len(rest)] == first)
        for distance, token in enumerate(rest, 1):
            at = at[tokens[at + distance] == token]
        found[word] = len(at)
    return found
