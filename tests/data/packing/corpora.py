"""Small shards and a vocabulary for them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from foreword.data.shards import Shards, ShardWriter
from foreword.types import Vocab

SPECIAL = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "<s>": 5, "</s>": 6}


def vocab(size: int = 1000) -> Vocab:
    """Seven special tokens, then plain ones."""
    is_special = np.arange(size) < len(SPECIAL)
    return Vocab(size, SPECIAL, np.empty(0, np.int64), is_special, np.ones(size, bool))


def shards(folder: Path, lengths: list[int]) -> Shards:
    """Documents of so many tokens, which count up from 10; a sentence has at most 4."""
    with ShardWriter(folder / "train", 1000) as writer:
        token = 10
        for length in lengths:
            sentences = [4] * (length // 4) + ([length % 4] if length % 4 else [])
            ids = np.arange(token, token + length)
            writer.add(ids, np.array(sentences, dtype=int), np.array([len(sentences)]))
            token += length
    return Shards.open(folder / "train")
