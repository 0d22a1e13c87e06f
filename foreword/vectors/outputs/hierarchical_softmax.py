"""Words found by the way to them in a tree: hierarchical softmax."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from foreword.types import Array
from foreword.vectors import through_gensim
from foreword.vectors.outputs._contract import Progress, Scorer, Vectors, VectorTraining
from foreword.vectors.tree import HuffmanTree
from foreword.vectors.words import WordCorpus


@dataclass(frozen=True)
class HierarchicalSoftmax:
    """A word is a way through a Huffman tree, and each fork of it a yes or no.

    Gensim learns the vectors: forks near the root have a part in every prediction, and what is
    won by taking steps together is lost on them. With one thread, the same seed gives the same
    vectors.

    Reference: Mikolov et al. 2013b, section 2.1; Morin & Bengio 2005.
    """

    def fit(
        self, words: WordCorpus, vectors: Vectors, course: VectorTraining, progress: Progress
    ) -> None:
        """See `VectorOutput`.

        Raises:
            UserError: gensim is not installed.
        """
        through_gensim.learn(words, vectors, course, progress, tree=HuffmanTree.of(words.counts))

    def scorer(self, counts: Array) -> Scorer:
        """See `VectorOutput`: the sum of the turns on the way to a word.

        Tokens that have no place in the tree are as likely as half a count.
        """
        tree = HuffmanTree.of(counts)
        floor = float(np.log(0.5) - np.log(counts.sum()))
        levels = [
            (nodes, tree.parents[nodes], tree.sides[nodes].astype(bool)) for nodes in tree.levels
        ]
        levels_ = [tuple(map(torch.from_numpy, level)) for level in levels]
        words = torch.from_numpy(tree.words)

        def score(states: Tensor, outputs: Tensor) -> Tensor:
            turns = (states @ outputs[: tree.forks].T).float()
            left, right = F.logsigmoid(turns), F.logsigmoid(-turns)
            parts = [left.new_zeros(*left.shape[:-1], len(tree.parents))]
            found = parts[0]
            for nodes, above, side in levels_:
                turned = torch.where(side, right[..., above], left[..., above])
                found = found.index_copy(-1, nodes, found[..., above] + turned)
            out = left.new_full((*left.shape[:-1], len(outputs)), floor)
            return out.index_copy(-1, words, found[..., tree.forks :])

        return score
