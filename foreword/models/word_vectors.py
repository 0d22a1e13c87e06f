"""Word vectors: a vector for each word, learned from the words around it."""

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
from foreword.kinds import part
from foreword.nn.embedding import Embedding
from foreword.nn.heads import VocabularyHead
from foreword.nn.model import Backbone
from foreword.nn.offline_training import FitResult, OfflineInputs
from foreword.nn.positions.none import None_
from foreword.nn.precision import upcast
from foreword.nn.settings import ModelSettings
from foreword.ranges import Count, ShareBelowOne
from foreword.types import Array, Batch, Hidden, Vocab
from foreword.vectors.contract import Architecture, Output, VectorCourse, Vectors
from foreword.vectors.words import Words

COUNTS = "counts.npy"
_SCORED = 512  # predictions scored at once


@dataclass(frozen=True)
class WordVectors(ModelSettings):
    """word2vec: a word's vector is what tells its neighbours, or what its neighbours tell it.

    It is fitted to the whole text, in epochs, with `optimizer.lr` for each prediction and not for
    their mean. There is one vector for a word, whatever stands around it.

    So that it is scored beside language models it predicts the next word too (objective `causal`,
    layout `decoder`): from the last word (skip-gram) or the mean of the last `window` (CBOW).
    `layers` and what goes with them do not apply.

    Attributes:
        architecture: what is predicted from what, `skip_gram` or `cbow`.
        output: how, without a softmax over all words: `negative_sampling`, `hierarchical_softmax`.
        window: the most words on each side of a context; each one's is drawn from 1 to this.
        subsample: words of a greater share of the text are thinned; 0 reads all.

    Reference: Mikolov et al. 2013a, section 3; 2013b, section 2.
    """

    reads_ahead: ClassVar[bool] = False
    trains_offline: ClassVar[bool] = True

    d_model: Count = 100
    layers: Count = 1
    dropout: ShareBelowOne = 0.0
    tied: bool = False
    architecture: Architecture = part("vectors/architectures", "skip_gram")
    output: Any = part("vectors/outputs", "negative_sampling")
    window: Count = 5
    subsample: ShareBelowOne = 1e-3

    def build(self, vocab: int) -> Backbone:
        """The backbone for a vocabulary of `vocab` ids."""
        return WordVectorsBackbone(self, vocab)

    def offline_epochs(self, unit: str, amount: float) -> int:
        """As many as the budget says.

        Raises:
            UserError: it is not a whole number of epochs.
        """
        if unit != "epochs" or amount != int(amount):
            raise UserError(
                f"train: word vectors read the whole text a number of times, and the budget is "
                f"{amount:g} {unit}; use --set train.epochs=5 alone"
            )
        return int(amount)


class WordVectorsBackbone(Backbone):
    """A table of vectors, and one of the output layer.

    Attributes:
        kind: its settings.
        outputs: of words, or of the forks of a tree over them.
        counts: of each token in the text it has learned from, (vocab,) int64.
    """

    def __init__(self, settings: WordVectors, vocab: int) -> None:
        super().__init__()
        self.settings = self.kind = settings
        self.embedding = Embedding(settings, vocab, widens=False)
        self.position = None_().build(0, 1, 0, layers=0, is_causal=True)
        self.outputs = nn.Embedding(vocab, settings.d_model)
        self.is_word = np.ones(vocab, dtype=bool)
        self.counts = np.ones(vocab, dtype=np.int64)
        self._score: Callable[[Tensor, Tensor], Tensor] | None = None

    def set_spellings(self, vocab: Vocab) -> None:
        """Tells which tokens are no words."""
        self.is_word = ~vocab.is_special

    def fit(self, reading: OfflineInputs) -> FitResult:
        """Learns from the text, from vectors drawn anew.

        Raises:
            UserError: a text of fewer than two different words, or gensim is needed and missing.
        """
        shards = reading.shards
        words = Words.of(shards.tokens, shards.document_starts, self.is_word)
        inputs, outputs = self.embedding.token.weight, self.outputs.weight
        random = torch.Generator().manual_seed(reading.seed)
        with torch.no_grad():
            inputs.copy_((torch.rand(inputs.shape, generator=random) - 0.5) / inputs.shape[1])
            outputs.zero_()
        tables = Vectors(inputs.detach().numpy(), outputs.detach().numpy())
        output: Output = self.kind.output
        output.fit(words, tables, self.course(reading), reading.progress)
        self.counts, self._score = words.counts, None
        met = int((words.counts > 0).sum())
        said = f"{words.total:,} words, {met:,} different ones, {reading.epochs} times"
        return FitResult(words.total * reading.epochs, (said,))

    def course(self, reading: OfflineInputs) -> VectorCourse:
        """How its vectors are learned from a text."""
        kind = self.kind
        return VectorCourse(
            architecture=kind.architecture,
            window=kind.window,
            subsample=kind.subsample,
            epochs=reading.epochs,
            lr=reading.lr,
            seed=reading.seed,
            threads=reading.threads,
        )

    def forward(self, batch: Batch, cache: Any = None) -> Hidden:
        """States (batch, length, d_model); `cache` is the vectors of the last words."""
        return replace(self.by_layer(batch, cache), layers=None)

    def by_layer(self, batch: Batch, cache: Any = None) -> Hidden:
        """The same, with the vectors of the words as the only layer."""
        x = self.embedding(batch, self.position)
        reach = self.kind.architecture.reach(self.kind.window)
        if cache is None:
            cache = x.new_zeros(len(x), reach - 1, x.shape[2])
        words = torch.cat([cache, x], dim=1)  # (batch, reach - 1 + length, d_model)
        seen = words.unfold(1, reach, 1)  # (batch, length, d_model, reach)
        back = torch.arange(reach - 1, -1, -1, device=x.device)
        inside = (back <= batch.positions[..., None]).to(x)  # (batch, length, reach)
        states = (seen @ inside[..., None]).squeeze(-1) / inside.sum(-1, keepdim=True)
        return Hidden(states, words[:, words.shape[1] - reach + 1 :], layers=(x,))

    def build_token_head(self) -> nn.Module:
        """What the output layer says of the next word."""
        return WordHead(self)

    def score(self, states: Tensor) -> Tensor:
        """Of each word, but for what all share; (..., d_model) -> (..., vocab), float32 at least.

        Raises:
            UserError: the vectors came from a file, which holds no output layer.
        """
        if self._score is None:
            if not self.outputs.weight.any():
                raise UserError(
                    "the file that it was imported from holds no output layer: the run predicts "
                    "nothing"
                )
            output: Output = self.kind.output
            self._score = output.scorer(self.counts)
        return upcast(self._score(states, self.outputs.weight))

    def save(self, folder: Path) -> None:
        """Writes the counts."""
        np.save(folder / COUNTS, self.counts, allow_pickle=False)

    def load(self, folder: Path) -> None:
        """Takes what `save` wrote.

        Raises:
            UserError: it is damaged, or of another vocabulary.
        """
        try:
            counts: Array = np.load(folder / COUNTS, allow_pickle=False)
        except (OSError, ValueError) as error:
            raise UserError(f"{folder / COUNTS}: cannot be read: {error}") from error
        if counts.shape != self.counts.shape:
            raise UserError(f"{folder / COUNTS}: counts of another vocabulary")
        self.counts, self._score = counts, None


class WordHead(VocabularyHead):
    """The output layer of word vectors, as one that predicts the next word.

    Args:
        backbone: whose output layer it is.
    """

    def __init__(self, backbone: WordVectorsBackbone) -> None:
        super().__init__()
        self._score = backbone.score  # the backbone itself would be a part of the head

    def scores(self, states: Tensor) -> Tensor:
        """Return logits, (..., d_model) -> (..., vocab), float32 at least."""
        return self._score(states)

    def nll(self, states: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
        """Return the weighted cross-entropy, computed some states at a time."""
        total = weights.new_zeros(())
        for at in range(0, len(states), _SCORED):
            some = slice(at, at + _SCORED)
            each = F.cross_entropy(self.scores(states[some]), targets[some], reduction="none")
            total = total + (each * weights[some]).sum()
        return total
