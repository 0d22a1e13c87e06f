"""Words found by the way to them in a tree: hierarchical softmax."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from foreword.errors import UserError
from foreword.types import Array
from foreword.vectors.contract import Progress, Scorer, VectorCourse, Vectors
from foreword.vectors.tree import Tree
from foreword.vectors.words import Words

LONGEST = 10_000  # words of a text that gensim reads; it drops the rest


@dataclass(frozen=True)
class HierarchicalSoftmax:
    """A word is a way through a Huffman tree, and each fork of it a yes or no.

    Gensim learns the vectors: forks near the root have a part in every prediction, and what is
    won by taking steps together is lost on them. With one thread, the same seed gives the same
    vectors.

    Reference: Mikolov et al. 2013b, section 2.1; Morin & Bengio 2005.
    """

    def fit(self, words: Words, vectors: Vectors, course: VectorCourse, progress: Progress) -> None:
        """See `Output`.

        Raises:
            UserError: gensim is not installed.
        """
        try:
            from gensim.models import Word2Vec
        except ImportError as error:
            raise UserError(
                "model.output: hierarchical_softmax needs gensim: pip install 'foreword[vectors]'; "
                "negative_sampling needs nothing"
            ) from error
        tree = Tree.of(words.counts)
        model = Word2Vec(
            vector_size=vectors.inputs.shape[1],
            alpha=course.lr(0.0),
            min_alpha=course.lr(1.0),
            window=course.window,
            sample=course.subsample,
            seed=course.seed,
            workers=course.threads,
            sg=int(course.architecture.is_skip_gram),
            hs=1,
            negative=0,
            min_count=1,
            epochs=course.epochs,
        )
        counts = {str(word): int(words.counts[word]) for word in tree.words}
        model.build_vocab_from_freq(counts)
        keys = model.wv.key_to_index
        order = np.array([keys[str(word)] for word in tree.words])
        for place, index in enumerate(order):
            forks, sides = tree.path(place)
            model.wv.set_vecattr(int(index), "point", np.array(forks, dtype=np.uint32))
            model.wv.set_vecattr(int(index), "code", np.array(sides, dtype=np.uint8))
        model.wv.vectors[order] = vectors.inputs[tree.words]
        model.train(
            _Texts(words, course.epochs, progress), total_words=words.total, epochs=course.epochs
        )
        vectors.inputs[tree.words] = model.wv.vectors[order]
        vectors.outputs[: tree.forks] = model.syn1[: tree.forks]

    def scorer(self, counts: Array) -> Scorer:
        """See `Output`: the sum of the turns on the way to a word.

        Tokens that have no place in the tree are as likely as half a count.
        """
        tree = Tree.of(counts)
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


class _Texts:
    """Texts as gensim reads them, once for each epoch."""

    def __init__(self, words: Words, epochs: int, progress: Progress) -> None:
        self.words, self.epochs, self.progress, self.begun = words, epochs, progress, 0
        self.names = np.array([str(n) for n in range(len(words.counts))], dtype=object)

    def __iter__(self) -> Iterator[list[str]]:
        self.progress(self.begun, self.epochs)
        self.begun += 1
        for text in self.words.texts():
            for at in range(0, len(text), LONGEST):
                yield self.names[text[at : at + LONGEST]].tolist()
