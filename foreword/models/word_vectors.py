"""Word vectors: a vector for each word, learned from the words around it.

Word vectors are trained outside the loop, since a step of the loop touches every row of both tables
and a step of word2vec a few hundred. gensim trains CBOW and hierarchical softmax, in which it is
faster than batched steps of ours (docs/results/word_vectors.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from foreword.errors import UserError
from foreword.nn.heads import VocabularyHead
from foreword.nn.model import Backbone, ModelSettings, NeuralBackbone
from foreword.nn.offline_training import (
    FitResult,
    OfflineArchitecture,
    OfflineBackbone,
    OfflineInputs,
)
from foreword.nn.positions.none import None_
from foreword.nn.precision import upcast
from foreword.settings.kinds import part
from foreword.settings.ranges import Count, ShareBelowOne
from foreword.types import Array, Batch, Hidden, Vocab
from foreword.vectors.architectures._contract import VectorArchitecture
from foreword.vectors.corpus import WordCorpus
from foreword.vectors.outputs._contract import VectorOutput, Vectors, VectorTraining

COUNTS = "counts.npy"
_SCORED = 512  # predictions scored at once


@dataclass(frozen=True)
class WordVectors(ModelSettings, OfflineArchitecture):
    """word2vec: a word's vector predicts its neighbours, or is predicted by them.

    It is trained offline, in epochs over the whole text; `optimizer.lr` is per prediction, not for
    their mean. A word has one vector in all contexts.

    To be comparable to language models it predicts the next word too (objective `causal`,
    layout `decoder`): from the last word (skip-gram) or the mean of the last `window` (CBOW).
    Trained on words that stand near it, in any order, it is a weak language model.
    `layers` and the settings of layers do not apply.

    Attributes:
        architecture: what is predicted from what, `skip_gram` or `cbow`.
        output: loss in place of a softmax over all words, `negative_sampling` or
            `hierarchical_softmax`.
        window: maximum words on each side of a context; each context draws its own from 1 to this.
        subsample: words with a greater share of the text are subsampled; 0 keeps all.

    Also called: word2vec.
    Reference: Mikolov et al. 2013a, section 3; 2013b, section 2.
    """

    reads_ahead: ClassVar[bool] = False
    has_layers: ClassVar[bool] = False

    d_model: Count = 100
    layers: Count = 1
    dropout: ShareBelowOne = 0.0
    tied: bool = False
    architecture: VectorArchitecture = part("vectors/architectures", "skip_gram")
    output: Any = part("vectors/outputs", "negative_sampling")
    window: Count = 5
    subsample: ShareBelowOne = 1e-3

    def build(self, vocab: int) -> Backbone:
        return WordVectorsBackbone(self, vocab)

    def require_packages(self) -> None:
        """Check that the output layer's packages are installed.

        Raises:
            UserError: gensim is required and missing.
        """
        output: VectorOutput = self.output
        output.require_packages()

    def offline_epochs(self, unit: str, amount: float) -> int:
        """Return the number of epochs of the budget.

        Raises:
            UserError: it is not a whole number of epochs.
        """
        if unit != "epochs" or amount != int(amount):
            raise UserError(
                f"train: word vectors need a whole number of epochs, but the budget is "
                f"{amount:g} {unit}; use --epochs 5 (train.epochs = 5) alone"
            )
        return int(amount)


class WordVectorsBackbone(NeuralBackbone, OfflineBackbone):
    """A table of vectors and the output layer's table.

    Attributes:
        kind: its settings.
        outputs: output vectors of words, or of the inner nodes of a tree over them.
        counts: occurrences of each token in the training text, (vocab,) int64.
    """

    counts: Array

    def __init__(self, settings: WordVectors, vocab: int) -> None:
        super().__init__()
        self.settings = self.kind = settings
        self.embedding = settings.build_embedding(vocab, projects=False)
        self.position = None_().build(0, 1, 0, layers=0, is_causal=True)
        self.outputs = nn.Embedding(vocab, settings.d_model)
        self.is_word = np.ones(vocab, dtype=bool)
        self.counts = np.ones(vocab, dtype=np.int64)
        self._score: Callable[[Tensor, Tensor], Tensor] | None = None

    def set_spellings(self, vocab: Vocab) -> None:
        """Set which tokens are words: all but special ones."""
        self.is_word = ~vocab.is_special

    def fit(self, inputs: OfflineInputs) -> FitResult:
        """Learn from the whole text, from newly initialised vectors.

        Raises:
            UserError: the text has fewer than two different words, or gensim is required and
                missing.
        """
        shards = inputs.shards
        corpus = WordCorpus.of(
            shards.tokens, shards.document_starts, self.is_word, shards.require_complete
        )
        vectors, outputs = self.embedding.token.weight, self.outputs.weight
        random = torch.Generator().manual_seed(inputs.seed)
        with torch.no_grad():
            vectors.copy_((torch.rand(vectors.shape, generator=random) - 0.5) / vectors.shape[1])
            outputs.zero_()
        tables = Vectors(vectors.detach().numpy(), outputs.detach().numpy())
        output: VectorOutput = self.kind.output
        output.fit(corpus, tables, self.training_settings(inputs), inputs.progress)
        self.counts, self._score = corpus.counts, None
        distinct = int((corpus.counts > 0).sum())
        note = f"{corpus.total:,} words, {distinct:,} different ones; epochs: {inputs.epochs}"
        return FitResult(corpus.total * inputs.epochs, (note,))

    def training_settings(self, inputs: OfflineInputs) -> VectorTraining:
        """Return the settings of a training of its vectors."""
        kind = self.kind
        return VectorTraining(
            architecture=kind.architecture,
            window=kind.window,
            subsample=kind.subsample,
            epochs=inputs.epochs,
            lr=inputs.lr,
            seed=inputs.seed,
            threads=inputs.threads,
        )

    def forward(self, batch: Batch, cache: Any = None) -> Hidden:
        """Return states (batch, length, d_model); `cache` is the vectors of the last words."""
        return replace(self.by_layer(batch, cache), layers=None)

    def by_layer(self, batch: Batch, cache: Any = None) -> Hidden:
        """Like `forward`, with the vectors of the words as the only layer."""
        x = self.embedding(batch, self.position)
        reach = self.kind.architecture.reach(self.kind.window)
        if cache is None:
            cache = x.new_zeros(x.shape[0], reach - 1, x.shape[2])
        words = torch.cat([cache, x], dim=1)  # (batch, reach - 1 + length, d_model)
        windows = words.unfold(1, reach, 1)  # (batch, length, d_model, reach)
        # The mean of the last `reach` words, but none of an earlier document.
        distance = torch.arange(reach - 1, -1, -1, device=x.device)
        inside = (distance <= batch.positions[..., None]).to(x)  # (batch, length, reach)
        states = (windows @ inside[..., None]).squeeze(-1) / inside.sum(-1, keepdim=True)
        return Hidden(states, words[:, words.shape[1] - reach + 1 :], layers=(x,))

    def build_token_head(self) -> nn.Module:
        """Return the output layer as a head that predicts the next word."""
        return WordHead(self)

    def score(self, states: Tensor) -> Tensor:
        """Return logits, up to a constant, (..., d_model) -> (..., vocab), float32 at least.

        Raises:
            UserError: the vectors were imported from a file without an output layer.
        """
        if self._score is None:
            if not self.outputs.weight.any():
                raise UserError(
                    "the file that it was imported from holds no output layer: the run predicts "
                    "nothing"
                )
            output: VectorOutput = self.kind.output
            self._score = output.scorer(self.counts)
        return upcast(self._score(states, self.outputs.weight))

    def save(self, folder: Path) -> None:
        """Write the counts."""
        np.save(folder / COUNTS, self.counts, allow_pickle=False)

    def load(self, folder: Path) -> None:
        """Load what `save` wrote.

        Raises:
            UserError: the file is damaged, or of another vocabulary.
        """
        try:
            counts: Array = np.load(folder / COUNTS, allow_pickle=False)
        except (OSError, ValueError) as error:
            raise UserError(f"{folder / COUNTS}: cannot be read: {error}") from error
        if counts.shape != self.counts.shape:
            raise UserError(f"{folder / COUNTS}: counts of another vocabulary")
        self.counts, self._score = counts, None


class WordHead(VocabularyHead):
    """The output layer of word vectors, as a head that predicts the next word.

    Args:
        backbone: the word vectors.
    """

    def __init__(self, backbone: WordVectorsBackbone) -> None:
        super().__init__()
        self._score = backbone.score  # assigning the backbone would make it a submodule

    def scores(self, states: Tensor) -> Tensor:
        """Return logits, (..., d_model) -> (..., vocab), float32 at least."""
        return self._score(states)

    def nll(self, states: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
        """Return the weighted cross-entropy, computed `_SCORED` states at a time."""
        total = weights.new_zeros(())
        for start in range(0, len(states), _SCORED):
            part = slice(start, start + _SCORED)
            losses = F.cross_entropy(self.scores(states[part]), targets[part], reduction="none")
            total = total + (losses * weights[part]).sum()
        return total
