r"""Sentences with the depth of each word in its dependency tree, as an example of two plug-ins.

The depth takes the place of the segment: `model.segments=16` embeds it, and position scheme
`structural`, among these examples, compares those of query and key. Text is one sentence a line:

    zcat train.conllu.gz | grep '^# text = ' | cut -c10- > train.txt
    foreword pretrain bert_mini_one_objective --plugins docs/examples --data train.txt \
        --documents line --out RUN --set packing.kind=dependency_depth --set packing.length=64 \
        --set packing.trees=train.conllu.gz --set model.position=structural --set model.segments=16
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from foreword.data.packing._contract import Packed, Packing
from foreword.data.shards import Shards
from foreword.settings import kinds
from foreword.settings.ranges import Count
from foreword.tables.conllu import read_conllu
from foreword.types import Array, Rows, Vocab


@dataclass(frozen=True)
class DependencyDepth(Packing):
    """One sentence to a row, whose segments are the depths of its words: 0 of the root.

        sentence  She reads old books          reads is the root, old depends on books
        depths     1    0    2    1

    All pieces of a word have its depth. A sentence without a tree has depth 0 throughout.

    Attributes:
        length: tokens in a row.
        eos: the special token after each sentence, "" for none.
        trees: the trees of the sentences, a treebank in CoNLL-U, perhaps compressed.
        deepest: the greatest depth; deeper words share it.

    Reference: Wang et al. 2019, "Self-Attention with Structural Position Representations", 3.1.
    """

    length: Count = 128
    eos: str = "</s>"
    trees: str = ""
    deepest: Count = 15

    def open(
        self, shards: Shards, vocab: Vocab, seed: int, batch: int, *, once: bool = False
    ) -> Packed:
        """Return the corpus as rows of one sentence each.

        Raises:
            UserError: the text is shorter than a row, or the trees cannot be read.
        """
        inner: Any = kinds.load("data/packing", "one_document")(self.length, self.eos)
        depths = _depths_of_bytes(self.trees, self.deepest)
        return SentencesWithDepth(inner.open(shards, vocab, seed, batch, once=once), vocab, depths)


class SentencesWithDepth(Packed):
    """Rows of one sentence each, whose trees are looked up by their letters.

    Args:
        packed: the rows.
        vocab: has the spelling of each token.
        depths: the depth of each byte of a sentence by its bytes, as `_letters` returns them.
    """

    def __init__(self, packed: Packed, vocab: Vocab, depths: dict[bytes, Array]) -> None:
        self._packed, self._depths = packed, depths
        spellings = zip(vocab.spellings, vocab.is_special.tolist(), strict=False)
        self._spellings = [b"" if is_special else _letters(text) for text, is_special in spellings]
        self.rows_per_epoch, self.tokens_per_epoch = packed.rows_per_epoch, packed.tokens_per_epoch

    def rows(self, numbers: Array) -> Rows:
        """Return the rows with these numbers in the order of training, (batch,) int64."""
        rows = self._packed.rows(numbers)
        segments = np.zeros_like(rows.ids)
        for row, ids in enumerate(rows.ids.tolist()):
            parts = [
                self._spellings[token] if token < len(self._spellings) else b"" for token in ids
            ]
            depths = self._depths.get(b"".join(parts))
            if depths is not None:
                ends = np.cumsum([len(part) for part in parts])
                has_letters = [bool(part) for part in parts]
                firsts = np.concatenate([[0], ends[:-1]])[has_letters]
                segments[row, has_letters] = depths[firsts]
        return replace(rows, segments=segments)


def _depths_of_bytes(trees: str, deepest: int) -> dict[bytes, Array]:
    """Return the depth of each byte of each sentence, by the sentence's bytes."""
    found = {}
    for sentence in read_conllu(Path(trees), "depth") if trees else ():
        words = [_letters(word.encode()) for word in sentence.words]
        known = [min(int(depth or 0), deepest) for depth in sentence.tags["depth"]]
        found[b"".join(words)] = np.repeat(known, [len(word) for word in words])
    return found


def _letters(text: bytes) -> bytes:
    """Return a text in lower case without its spaces, in which tokenizers differ."""
    return b"".join(text.lower().split())
