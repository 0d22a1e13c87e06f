"""Word vectors trained by gensim, on the words that we read and from our initial vectors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from foreword.errors import UserError
from foreword.types import Array
from foreword.vectors.corpus import CHUNK, WordCorpus
from foreword.vectors.outputs._contract import Progress, Vectors, VectorTraining
from foreword.vectors.tree import HuffmanTree

LONGEST = 10_000  # gensim drops the words of a text beyond this many, so longer texts are split


def learn(
    corpus: WordCorpus,
    vectors: Vectors,
    training: VectorTraining,
    progress: Progress,
    *,
    tree: HuffmanTree | None = None,
    negatives: int = 0,
    exponent: float = 0.0,
) -> None:
    """Train by hierarchical softmax or negative sampling; deterministic with one thread.

    Args:
        corpus: the words of the texts.
        vectors: changed in place; the outputs are those of the tree's forks or of the words.
        training: the settings of the training.
        progress: called with the epochs that were passed to gensim, as a fraction, and all epochs.
        tree: the tree of hierarchical softmax, or None for negative sampling; ours and not
            gensim's, so that the vectors of its forks can be used without gensim.
        negatives: noise words for each prediction, without a tree.
        exponent: the exponent of the word frequency in the noise distribution.

    Raises:
        UserError: gensim is not installed.
    """
    # Build gensim's vocabulary. A word's name is its id in digits: gensim looks counts up by index,
    # and would take an integer name for an index.
    names = np.array([str(word) for word in range(len(corpus.counts))], dtype=object)
    model = _gensim_model(vectors.inputs.shape[1], training, tree is not None, negatives, exponent)
    seen = np.flatnonzero(corpus.counts)
    model.build_vocab_from_freq({names[word]: int(corpus.counts[word]) for word in seen})
    order = np.array([int(name) for name in model.wv.index_to_key])
    # Train from our initial vectors, with our tree.
    if tree is not None:
        _set_tree(model.wv, tree, names)
    model.wv.vectors[:] = vectors.inputs[order]
    texts = _NamedTexts(corpus, names, training.epochs, progress)
    model.train(texts, total_words=corpus.total, epochs=training.epochs)
    # Copy the trained vectors back, from gensim's order to that of ids.
    vectors.inputs[order] = model.wv.vectors
    if tree is None:
        vectors.outputs[order] = model.syn1neg
    else:
        vectors.outputs[: tree.forks] = model.syn1[: tree.forks]


def require_gensim() -> None:
    """Check that gensim can be imported.

    Raises:
        UserError: it is not installed.
    """
    try:
        import gensim.models  # noqa: F401
    except ImportError as error:
        raise UserError(
            "model.output: this kind requires gensim: pip install 'foreword[vectors]', or "
            "--set model.output=negative_sampling, which does not"
        ) from error


def _gensim_model(
    d_model: int, training: VectorTraining, has_tree: bool, negatives: int, exponent: float
) -> Any:
    """Return gensim's model, without a vocabulary."""
    require_gensim()
    from gensim.models import Word2Vec

    return Word2Vec(
        vector_size=d_model,
        alpha=training.lr(0.0),
        min_alpha=training.lr(1.0),
        window=training.window,
        sample=training.subsample,
        seed=training.seed,
        workers=training.threads,
        sg=int(training.architecture.is_skip_gram),
        hs=int(has_tree),
        negative=negatives,
        ns_exponent=exponent,
        min_count=1,
        epochs=training.epochs,
    )


def _set_tree(keyed_vectors: Any, tree: HuffmanTree, names: Array) -> None:
    """Set the path of each of gensim's words to its path in our tree."""
    for index, word in enumerate(tree.words):
        forks, sides = tree.path(index)
        keyed_vectors.set_vecattr(names[word], "point", np.array(forks, dtype=np.uint32))
        keyed_vectors.set_vecattr(names[word], "code", np.array(sides, dtype=np.uint8))


class _NamedTexts:
    """The texts as lists of gensim's names of words; each iteration is an epoch."""

    def __init__(self, corpus: WordCorpus, names: Array, epochs: int, progress: Progress) -> None:
        self.corpus, self.names, self.epochs, self.progress = corpus, names, epochs, progress
        self.epoch = 0

    def __iter__(self) -> Iterator[list[str]]:
        words, reported = 0, -CHUNK
        for text in self.corpus.texts():
            if words - reported >= CHUNK:
                self.progress(self.epoch + words / self.corpus.total, self.epochs)
                reported = words
            named: list[str] = self.names[text].tolist()
            yield from (named[at : at + LONGEST] for at in range(0, len(text), LONGEST))
            words += len(text)
        self.epoch += 1
