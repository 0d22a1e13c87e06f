"""Vectors learned by gensim, from the words that we read and with our first vectors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from foreword.errors import UserError
from foreword.types import Array
from foreword.vectors.outputs._contract import Progress, Vectors, VectorTraining
from foreword.vectors.tree import HuffmanTree
from foreword.vectors.words import CHUNK, WordCorpus

LONGEST = 10_000  # words of a text that gensim reads; it drops the rest


def learn(
    words: WordCorpus,
    vectors: Vectors,
    course: VectorTraining,
    progress: Progress,
    *,
    tree: HuffmanTree | None = None,
    negatives: int = 0,
    exponent: float = 0.0,
) -> None:
    """Learns through the forks of a tree, or against noise; with one thread, a seed says it all.

    Args:
        words: what is read.
        vectors: changed in place; the outputs are of the tree's forks or of the words.
        course: how it is learned.
        progress: told of the epochs that were handed to gensim, parts of them too.
        tree: hierarchical softmax over it, if there is one; our tree and not gensim's, since
            what is learned of its forks is to be read without gensim.
        negatives: noise words for each prediction, without a tree.
        exponent: of the frequency of words as noise.

    Raises:
        UserError: gensim is not installed.
    """
    try:
        from gensim.models import Word2Vec
    except ImportError as error:
        raise UserError(
            "model.output: this kind learns through gensim: pip install 'foreword[vectors]', or "
            "--set model.output=negative_sampling, which needs nothing"
        ) from error
    model = Word2Vec(
        vector_size=vectors.inputs.shape[1],
        alpha=course.lr(0.0),
        min_alpha=course.lr(1.0),
        window=course.window,
        sample=course.subsample,
        seed=course.seed,
        workers=course.threads,
        sg=int(course.architecture.is_skip_gram),
        hs=int(tree is not None),
        negative=negatives,
        ns_exponent=exponent,
        min_count=1,
        epochs=course.epochs,
    )
    met = np.flatnonzero(words.counts)
    # Ids are spelled: gensim asks for the count at a place, and would find the word of that number.
    names = np.array([str(word) for word in range(len(words.counts))], dtype=object)
    model.build_vocab_from_freq({names[word]: int(words.counts[word]) for word in met})
    order = np.array([int(name) for name in model.wv.index_to_key])
    if tree is not None:
        _hang(model.wv, tree, names)
    model.wv.vectors[:] = vectors.inputs[order]
    texts = _Texts(words, names, course.epochs, progress)
    model.train(texts, total_words=words.total, epochs=course.epochs)
    vectors.inputs[order] = model.wv.vectors
    if tree is None:
        vectors.outputs[order] = model.syn1neg
    else:
        vectors.outputs[: tree.forks] = model.syn1[: tree.forks]


def _hang(keyed: Any, tree: HuffmanTree, names: Array) -> None:
    """Gives each word of gensim's its way through our tree."""
    for place, word in enumerate(tree.words):
        forks, sides = tree.path(place)
        keyed.set_vecattr(names[word], "point", np.array(forks, dtype=np.uint32))
        keyed.set_vecattr(names[word], "code", np.array(sides, dtype=np.uint8))


class _Texts:
    """Texts as gensim reads them, once for each epoch."""

    def __init__(self, words: WordCorpus, names: Array, epochs: int, progress: Progress) -> None:
        self.words, self.names, self.epochs, self.progress = words, names, epochs, progress
        self.begun = 0

    def __iter__(self) -> Iterator[list[str]]:
        read, told = 0, -CHUNK
        for text in self.words.texts():
            if read - told >= CHUNK:
                self.progress(self.begun + read / self.words.total, self.epochs)
                told = read
            spelled: list[str] = self.names[text].tolist()
            yield from (spelled[at : at + LONGEST] for at in range(0, len(text), LONGEST))
            read += len(text)
        self.begun += 1
