"""N-gram language models: each word is predicted from the n - 1 words before it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from annotated_types import Interval
from torch import Tensor, nn

from foreword.errors import UserError
from foreword.ngrams.counting import count
from foreword.ngrams.scratch import CHUNK, Scratch
from foreword.ngrams.smoothing._contract import Smoothing
from foreword.ngrams.table import NgramTable
from foreword.ngrams.texts import NgramTexts
from foreword.nn.heads import VocabularyHead
from foreword.nn.model import Backbone, Model
from foreword.nn.offline_training import (
    FitResult,
    OfflineArchitecture,
    OfflineBackbone,
    OfflineInputs,
)
from foreword.settings import kinds
from foreword.settings.kinds import part
from foreword.settings.ranges import Count
from foreword.types import Batch, Hidden


@dataclass(frozen=True)
class NGram(OfflineArchitecture):
    """Smoothed counts of words after the n - 1 words before; no gradients.

    It requires objective `causal`, layout `decoder`, and a packing with a `bos` token,
    which is given and never predicted. As in KenLM, words are all tokens but the special ones, plus
    [UNK] and the packing's `eos`; they share the mass that unigrams leave, seen or not.

    Attributes:
        order: n, the word itself included.
        smoothing: smoothing of the counts, a kind in `ngrams/smoothing/`.
        chunk: tokens or n-grams processed at once, about 80 bytes each; the rest is on disk.

    Also called: n-gram.
    Reference: Shannon 1948, section 3; Chen & Goodman 1998.
    """

    reads_ahead: ClassVar[bool] = False
    is_count_based: ClassVar[bool] = True

    order: Annotated[int, Interval(ge=1, le=100)] = 5
    smoothing: Smoothing = part("ngrams/smoothing", "modified_kneser_ney")
    chunk: Count = CHUNK

    @property
    def family(self) -> str:
        """The order and the smoothing."""
        return f"{self.order}-gram model ({kinds.name_of(self.smoothing)})"

    def build(self, vocab: int) -> Backbone:
        """Return the model, not yet trained."""
        return NgramBackbone(self, vocab)

    def offline_epochs(self, unit: str, amount: float) -> int:
        """Return 1 for any budget: reading a text twice adds nothing to its counts."""
        return 1


class NgramBackbone(Backbone, OfflineBackbone):
    """A table of n-grams. Its states are the n-grams that end at each position.

    Attributes:
        kind: its settings.
        table: table of n-grams; uniform before training.
    """

    def __init__(self, kind: NGram, vocab: int) -> None:
        super().__init__()
        self.kind = kind
        self.vocab = vocab
        self.table = NgramTable.uniform(np.ones(vocab, dtype=bool), start=-1)

    def build_token_head(self) -> nn.Module:
        """Return a head that reads the table."""
        return NgramHead(self)

    @property
    def extra_values(self) -> int:
        """Number of probabilities and back-off weights."""
        return self.table.stored_values

    def fit(self, inputs: OfflineInputs) -> FitResult:
        """Count the text; the counts stay in the inputs' folder while they are in use.

        Raises:
            UserError: no token begins each text, or no text is as long as the order.
        """
        # Count n-grams of all orders, out of core.
        kind, scratch = self.kind, Scratch(inputs.folder, self.kind.chunk)
        texts = NgramTexts.of(inputs.shards, inputs.vocab, inputs.bos, inputs.eos)
        stream = texts.store(scratch, inputs.shards.tokens.dtype)
        levels = count(stream, kind.order, self.vocab, texts.start, scratch, inputs.progress)
        longest = max(n for n, level in enumerate(levels, start=1) if level.counts.any())
        if longest < kind.order:
            raise UserError(
                f"model.order: {kind.order} words, but no text has more than {longest}, its begin "
                f"and end included; set model.order={longest} or less"
            )
        # Smooth the counts.
        self.table = table = NgramTable.of(
            levels, texts.start, kind.smoothing, texts.is_word, scratch
        )
        orders = range(1, kind.order + 1)
        sizes = ", ".join(f"{table.size_of(n):,} {n}-grams" for n in orders)
        size = sum(map(table.bytes_of, orders))
        return FitResult(len(texts), (f"{sizes}: {size / 1e6:,.1f} MB", *table.header.notes))

    def save(self, folder: Path) -> None:
        """Write the table into an existing folder."""
        self.table.save(folder)

    def load(self, folder: Path) -> None:
        """Load what `save` wrote, memory-mapped.

        Raises:
            UserError: the files are damaged, or of another recipe.
        """
        table = NgramTable.load(folder)
        if (table.header.order, table.header.vocab) != (self.kind.order, self.vocab):
            raise UserError(
                f"{folder}: n-grams up to {table.header.order} of {table.header.vocab:,} tokens, "
                f"and the recipe says {self.kind.order} of {self.vocab:,}"
            )
        self.table = table

    def forward(self, batch: Batch, cache: Any = None) -> Hidden:
        """Return states (batch, length, order - 1) int64; `cache` is the last words.

        The states are the n-grams of `NgramTable.find`.
        """
        # The cached words come first, so that contexts reach back into them.
        ids, positions, cached = batch.ids, batch.positions, 0
        if cache is not None:
            cached = cache[0].shape[1]
            ids = torch.cat([cache[0], ids], dim=1)
            positions = torch.cat([cache[1], positions], dim=1)
        first_cached = max(0, ids.shape[1] - self.table.header.order + 1)
        words = ids.cpu().numpy()
        is_first = (positions.cpu().numpy() == 0) | (words == self.table.header.start)
        is_first[:, 0] = True
        # The n-grams of each order below n that end at each word.
        longest = self.table.header.order - 1
        ngrams = self.table.find(words.ravel(), is_first.ravel(), longest)[:longest]
        shape = (*words.shape, len(ngrams))
        contexts = np.stack(ngrams, axis=1) if ngrams else np.empty(shape, dtype=np.int64)
        states = torch.from_numpy(contexts.reshape(shape)[:, cached:]).to(ids.device)
        return Hidden(states, (ids[:, first_cached:], positions[:, first_cached:]))


class NgramHead(VocabularyHead):
    """Log-probabilities of the next word, given the n-grams that end a context.

    Args:
        backbone: holds the table.
    """

    def __init__(self, backbone: NgramBackbone) -> None:
        super().__init__()
        self.backbone = backbone

    def scores(self, states: Tensor) -> Tensor:
        """Return log-probabilities, (..., order - 1) -> (..., vocab) float32.

        Raises:
            UserError: no word has a positive probability, without smoothing of unseen n-grams.
        """
        table = self.backbone.table
        shape = states.shape[:-1]
        contexts = states.reshape(math.prod(shape), states.shape[-1]).cpu().numpy()
        log_probs = table.distribution(contexts)
        if np.isneginf(log_probs.max(axis=1, initial=-np.inf)).any() and len(log_probs):
            raise UserError(
                "unseen contexts have probability 0 under this smoothing; train with "
                "model.smoothing=modified_kneser_ney"
            )
        scores = torch.from_numpy(log_probs.astype(np.float32))
        return scores.reshape(*shape, table.header.vocab).to(states.device)

    def log_probs(self, states: Tensor, targets: Tensor) -> Tensor:
        """Return each target's log-probability, in nats; (n, order - 1), (n,) -> (n,) float64."""
        log_probs = self.backbone.table.log_probs_after(states.cpu().numpy(), targets.cpu().numpy())
        return torch.from_numpy(log_probs).to(states.device)

    def nll(self, states: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
        """Return the weighted sum of negative log-probabilities."""
        return -(self.log_probs(states, targets) * weights).sum()


def table_of(model: Model) -> NgramTable:
    """Return the table of an n-gram model."""
    backbone = model.backbone
    if not isinstance(backbone, NgramBackbone):
        raise TypeError(f"{type(backbone).__name__} holds no table of n-grams")
    return backbone.table
