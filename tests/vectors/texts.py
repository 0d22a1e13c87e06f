"""A language of two topics: words of different topics never occur in one text."""

from __future__ import annotations

import numpy as np

from foreword.types import Array

SPECIAL = 2  # special tokens: ids 0 and 1
TOPIC = 8  # words in each topic
SIZE = SPECIAL + 2 * TOPIC


def is_word() -> Array:
    return np.arange(SIZE) >= SPECIAL


def topics(texts: int = 200, length: int = 20, seed: int = 1) -> tuple[Array, Array]:
    """Return tokens, and the start of each text and the end; the texts alternate between topics."""
    rng = np.random.default_rng(seed)
    share = 1 / np.arange(1, TOPIC + 1)
    ids = rng.choice(TOPIC, (texts, length), p=share / share.sum()) + SPECIAL
    ids += TOPIC * (np.arange(texts) % 2)[:, None]
    return ids.ravel().astype(np.uint16), np.arange(texts + 1) * length


def gap(vectors: Array) -> float:
    """Return the mean cosine within topics minus the mean between topics."""
    words = vectors[SPECIAL:]
    unit = words / np.linalg.norm(words, axis=1, keepdims=True)
    cosines, topic = unit @ unit.T, np.arange(2 * TOPIC) // TOPIC
    is_same = (topic[:, None] == topic) & ~np.eye(2 * TOPIC, dtype=bool)
    return float(cosines[is_same].mean() - cosines[topic[:, None] != topic].mean())
