"""Hierarchical softmax: a word's probability is that of its path in a Huffman tree."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from foreword.types import Array
from foreword.vectors import through_gensim
from foreword.vectors.corpus import WordCorpus
from foreword.vectors.outputs._contract import (
    Progress,
    Scorer,
    VectorOutput,
    Vectors,
    VectorTraining,
)
from foreword.vectors.tree import HuffmanTree


@dataclass(frozen=True)
class HierarchicalSoftmax(VectorOutput):
    """Each fork on the path to a word in a Huffman tree is a binary prediction.

    Gensim trains the vectors, one prediction at a time: forks near the root take part in every
    prediction, so batched steps would overshoot there. With one thread, the same seed gives the
    same vectors.

    Reference: Mikolov et al. 2013b, section 2.1; Morin & Bengio 2005.
    """

    def require_packages(self) -> None:
        through_gensim.require_gensim()

    def fit(
        self, corpus: WordCorpus, vectors: Vectors, training: VectorTraining, progress: Progress
    ) -> None:
        tree = HuffmanTree.of(corpus.counts)
        through_gensim.learn(corpus, vectors, training, progress, tree=tree)

    def scorer(self, counts: Array) -> Scorer:
        """See `VectorOutput`: the sum of the log-probabilities of a path's turns.

        Tokens outside the tree get the probability of half a count.
        """
        tree = HuffmanTree.of(counts)
        floor = float(np.log(0.5) - np.log(counts.sum()))
        levels = [
            tuple(map(torch.from_numpy, (nodes, tree.parents[nodes], tree.sides[nodes] == 1)))
            for nodes in tree.levels
        ]
        leaves = torch.from_numpy(tree.words)

        def score(states: Tensor, outputs: Tensor) -> Tensor:
            turns = (states @ outputs[: tree.forks].T).float()
            left, right = F.logsigmoid(turns), F.logsigmoid(-turns)
            # Each node: its parent's log-probability plus that of the turn to it.
            log_probs = left.new_zeros(*left.shape[:-1], len(tree.parents))
            for nodes, above, side in levels:
                turn = torch.where(side, right[..., above], left[..., above])
                log_probs = log_probs.index_copy(-1, nodes, log_probs[..., above] + turn)
            out = left.new_full((*left.shape[:-1], len(outputs)), floor)
            return out.index_copy(-1, leaves, log_probs[..., tree.forks :])

        return score
