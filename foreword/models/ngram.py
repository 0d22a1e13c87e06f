"""The language model of counts: each word by the n - 1 words before it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, NoReturn

import numpy as np
import torch
from annotated_types import Interval
from torch import Tensor, nn

from foreword.errors import UserError
from foreword.kinds import part
from foreword.ngrams.counting import count
from foreword.ngrams.scratch import CHUNK, Scratch
from foreword.ngrams.smooth import Smoothing
from foreword.ngrams.table import Table
from foreword.ngrams.texts import Texts
from foreword.nn.heads import VocabularyHead
from foreword.nn.model import Backbone, Model
from foreword.nn.offline_training import FitResult, OfflineInputs
from foreword.nn.settings import Architecture
from foreword.ranges import Count
from foreword.types import Batch, Hidden


@dataclass(frozen=True)
class NGram(Architecture):
    """Counts of words after the n - 1 words before, smoothed; nothing is trained by gradients.

    It goes with objective `causal`, layout `decoder`, and a packing that puts a token `before` each
    text, which is given and never predicted. Words are all tokens but the special ones, with [UNK]
    and the token `after` a text among them, as KenLM has them; they share what unigrams leave,
    whether they were seen or not.

    Attributes:
        order: n, the word itself included.
        smoothing: what is made of the counts.
        chunk: tokens or n-grams worked on at once, about 80 bytes each; the rest waits on the disk.

    Reference: Shannon 1948, section 3; Chen & Goodman 1998.
    """

    reads_ahead: ClassVar[bool] = False
    trains_offline: ClassVar[bool] = True
    is_count_based: ClassVar[bool] = True

    order: Annotated[int, Interval(ge=1, le=100)] = 5
    smoothing: Smoothing = part("ngrams/smoothing", "modified_kneser_ney")
    chunk: Count = CHUNK

    def build(self, vocab: int) -> Backbone:
        """The model, which knows nothing yet."""
        return NgramBackbone(self, vocab)

    def offline_epochs(self, unit: str, amount: float) -> int:
        """Once, whatever the budget: counts of a text read twice say nothing new."""
        return 1


class NgramBackbone(Backbone):
    """A table of n-grams. Its states are the n-grams that end at each place.

    Attributes:
        kind: its settings.
        table: what it knows; of no n-grams before it is fitted.
    """

    def __init__(self, kind: NGram, vocab: int) -> None:
        super().__init__()
        self.kind = kind
        self.vocab = vocab
        self.table = Table.uniform(np.ones(vocab, dtype=bool), start=-1)

    @property
    def settings(self) -> NoReturn:  # type: ignore[override]
        """None of a neural model.

        Raises:
            UserError: always.
        """
        raise UserError("an n-gram model has no hidden states and no gradients; use another model")

    @property
    def embedding(self) -> NoReturn:
        """None.

        Raises:
            UserError: always.
        """
        raise UserError(
            "an n-gram model has no vectors of words; take word2vec_skip_gram or a neural run"
        )

    def build_token_head(self) -> nn.Module:
        """A head that asks the table."""
        return NgramHead(self)

    @property
    def numbers(self) -> int:
        """Probabilities and back-offs."""
        return self.table.numbers

    def fit(self, reading: OfflineInputs) -> FitResult:
        """Counts the text; the counts lie in the reading's folder for as long as they are in use.

        Raises:
            UserError: nothing begins each text, or no text is as long as the order.
        """
        kind, scratch = self.kind, Scratch(reading.folder, self.kind.chunk)
        texts = Texts.of(reading.shards, reading.vocab, reading.bos, reading.eos)
        stream = texts.store(scratch, reading.shards.tokens.dtype)
        levels = count(stream, kind.order, self.vocab, texts.start, scratch, reading.progress)
        longest = max(n for n, level in enumerate(levels, start=1) if level.counts.any())
        if longest < kind.order:
            raise UserError(
                f"model.order: {kind.order} words, but no text has more than {longest}, its begin "
                f"and end included; set model.order={longest} or less"
            )
        self.table = table = Table.of(levels, texts.start, kind.smoothing, texts.is_word, scratch)
        orders = range(1, kind.order + 1)
        sizes = ", ".join(f"{table.size_of(n):,} {n}-grams" for n in orders)
        size = sum(map(table.bytes_of, orders))
        return FitResult(len(texts), (f"{sizes}: {size / 1e6:,.1f} MB", *table.about.notes))

    def save(self, folder: Path) -> None:
        """Writes what it knows into a folder that is there."""
        self.table.save(folder)

    def load(self, folder: Path) -> None:
        """Takes what `save` wrote; it is mapped, not read.

        Raises:
            UserError: it is damaged, or of another recipe.
        """
        table = Table.load(folder)
        if (table.about.order, table.about.vocab) != (self.kind.order, self.vocab):
            raise UserError(
                f"{folder}: n-grams up to {table.about.order} of {table.about.vocab:,} tokens, and "
                f"the recipe says {self.kind.order} of {self.vocab:,}"
            )
        self.table = table

    def forward(self, batch: Batch, cache: Any = None) -> Hidden:
        """States (batch, length, order - 1) int64, see `Table.find`; `cache` is the last words."""
        ids, positions, before = batch.ids, batch.positions, 0
        if cache is not None:
            before = cache[0].shape[1]
            ids = torch.cat([cache[0], ids], dim=1)
            positions = torch.cat([cache[1], positions], dim=1)
        kept = max(0, ids.shape[1] - self.table.about.order + 1)
        words = ids.cpu().numpy()
        is_first = (positions.cpu().numpy() == 0) | (words == self.table.about.start)
        is_first[:, 0] = True
        below = self.table.about.order - 1
        found = self.table.find(words.ravel(), is_first.ravel(), below)[:below]
        shape = (*words.shape, len(found))
        contexts = np.stack(found, axis=1) if found else np.empty(shape, dtype=np.int64)
        states = torch.from_numpy(contexts.reshape(shape)[:, before:]).to(ids.device)
        return Hidden(states, (ids[:, kept:], positions[:, kept:]))


class NgramHead(VocabularyHead):
    """From the n-grams that a context ends with to the words after it.

    Args:
        backbone: whose table is asked.
    """

    def __init__(self, backbone: NgramBackbone) -> None:
        super().__init__()
        self.backbone = backbone

    def scores(self, states: Tensor) -> Tensor:
        """Return log-probabilities, (..., order - 1) -> (..., vocab) float32.

        Raises:
            UserError: nothing can follow, by a smoothing that gives nothing to what is unseen.
        """
        table = self.backbone.table
        shape = states.shape[:-1]
        contexts = states.reshape(math.prod(shape), states.shape[-1]).cpu().numpy()
        found = table.distribution(contexts)
        if np.isneginf(found.max(axis=1, initial=-np.inf)).any() and len(found):
            raise UserError(
                "after words never seen together nothing is possible by the model's smoothing; "
                "fit one with model.smoothing=modified_kneser_ney"
            )
        scores = torch.from_numpy(found.astype(np.float32))
        return scores.reshape(*shape, table.about.vocab).to(states.device)

    def log_probs(self, states: Tensor, targets: Tensor) -> Tensor:
        """Of each target after its context, nats; (n, order - 1), (n,) -> (n,) float64."""
        found = self.backbone.table.after(states.cpu().numpy(), targets.cpu().numpy())
        return torch.from_numpy(found).to(states.device)

    def nll(self, states: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
        """Return the weighted sum of negative log-probabilities."""
        return -(self.log_probs(states, targets) * weights).sum()


def table_of(model: Model) -> Table:
    """What a model of counts knows."""
    backbone = model.backbone
    if not isinstance(backbone, NgramBackbone):
        raise TypeError(f"{type(backbone).__name__} holds no table of n-grams")
    return backbone.table
