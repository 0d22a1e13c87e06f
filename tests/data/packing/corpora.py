"""Small shards and a vocabulary for them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from foreword.data.shards import Shards
from foreword.testing.packings import write_corpus
from foreword.types import Vocab

SPECIAL = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "<s>": 5, "</s>": 6}


def vocab(size: int = 1000) -> Vocab:
    """Seven special tokens, then plain ones."""
    is_special = np.arange(size) < len(SPECIAL)
    return Vocab(size, SPECIAL, np.empty(0, np.int64), is_special, np.ones(size, bool))


def shards(folder: Path, lengths: list[int]) -> Shards:
    """Write documents of `lengths` tokens, which count up from 10; a sentence has at most 4."""
    sentences = [[4] * (n // 4) + ([n % 4] if n % 4 else []) for n in lengths]
    return write(folder, sentences)


def pairs(folder: Path, lengths: list[int]) -> Shards:
    """The same tokens in pairs of at most 6 tokens on either side."""
    short = [part for n in lengths for part in [12] * (n // 12) + [n % 12] if part > 1]
    return write(folder, [[n // 2, n - n // 2] for n in short])


def write(folder: Path, documents: list[list[int]]) -> Shards:
    """Write documents of sequences of the given lengths; tokens count up from 10."""
    return write_corpus(folder, documents, first=10)
