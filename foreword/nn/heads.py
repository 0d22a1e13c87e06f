"""The head that predicts tokens, and the loss of all objectives that predict them."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from foreword.nn.cross_entropy import cross_entropy
from foreword.nn.embedding import Embedding
from foreword.nn.norm import build_norm
from foreword.nn.sample_tokens import sample_tokens
from foreword.nn.settings import ModelSettings
from foreword.types import Batch, Hidden, Loss


class VocabularyHead(nn.Module, ABC):
    """The contract of heads that predict tokens: states to scores over the vocabulary.

    Every computation goes through `forward`, so that hooks (FSDP, compilation, activation
    checkpointing) see it.
    """

    def forward(
        self,
        states: Tensor,
        targets: Tensor | None = None,
        weights: Tensor | None = None,
        uniform_draws: Tensor | None = None,
    ) -> Tensor:
        """Return the scores of all tokens, the loss of targets, or sampled tokens.

        Args:
            states: (..., d_model).
            targets: (predictions,) int64 for states (predictions, d_model), for the loss.
            weights: of the targets, (predictions,).
            uniform_draws: in [0, 1), (predictions,), for sampling.

        Returns:
            Logits or log-probabilities (..., vocab); with targets the weighted sum in nats; with
            draws tokens (predictions,) int64.
        """
        if uniform_draws is not None:
            return self.sample_tokens(states, uniform_draws)
        if targets is not None and weights is not None:
            return self.nll(states, targets, weights)
        return self.scores(states)

    @abstractmethod
    def scores(self, states: Tensor) -> Tensor:
        """Return logits or log-probabilities, (..., d_model) -> (..., vocab)."""

    @abstractmethod
    def nll(self, states: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
        """Return the weighted sum of the targets' negative log-probabilities."""

    def sample_tokens(self, states: Tensor, uniform_draws: Tensor) -> Tensor:
        """Return a sampled token for each state, by uniform draws in [0, 1).

        Raises:
            TypeError: this head does not sample tokens.
        """
        raise TypeError(f"{type(self).__name__} does not sample tokens")

    def loss(self, hidden: Hidden, batch: Batch) -> Loss:
        """Return the cross-entropy at positions of positive weight; only these are computed.

        Args:
            hidden: states at the positions that the batch has targets for.
            batch: with targets and weights.
        """
        where = target_indices(batch)
        weights, targets = batch.weights.flatten()[where], batch.targets.flatten()[where]
        total = self(hidden.states.flatten(0, 1)[where], targets, weights)
        return Loss(total, weights.sum(), memory=hidden.memory)

    @torch.no_grad()
    def sample(self, hidden: Hidden, batch: Batch) -> Tensor:
        """Return a sampled token at each position of positive weight, by `batch.uniform_draws`.

        Args:
            hidden: states at the positions that the batch has targets for.
            batch: with weights and draws.

        Returns:
            (predictions,) int64, in the order of rows and positions.
        """
        where = target_indices(batch)
        draws = batch.uniform_draws.flatten()[where]
        tokens: Tensor = self(hidden.states.flatten(0, 1)[where], uniform_draws=draws)
        return tokens


class TokenHead(VocabularyHead):
    """States to scores over the vocabulary.

    Args:
        settings: of the backbone; `tied` makes its embedding the output layer.
        embedding: of the backbone.
        transform: whether a dense layer, GELU (in its tanh form if the backbone's is) and LayerNorm
            precede the output layer (BERT).
        bias: whether each token has a bias.
    """

    def __init__(
        self,
        settings: ModelSettings,
        embedding: Embedding,
        *,
        transform: bool = False,
        bias: bool = False,
    ) -> None:
        super().__init__()
        if not settings.output.is_full_softmax:
            raise ValueError("output: the objective brings its own output layer; use 'softmax'")
        vocab, width = embedding.token.num_embeddings, embedding.token.embedding_dim
        d_model = settings.token_width
        if not settings.tied and not transform:
            width = d_model
        # States are transformed (BERT), or projected to the width of a narrower embedding.
        self.transform: nn.Module = nn.Identity()
        if transform:
            norm = build_norm(settings.norm, width, settings.norm_eps, bias=settings.bias)
            is_tanh = getattr(settings, "activation", "").endswith("_tanh")
            gelu = nn.GELU(approximate="tanh" if is_tanh else "none")
            self.transform = nn.Sequential(
                nn.Linear(d_model, width, bias=settings.bias), gelu, norm
            )
        elif width != d_model:
            self.transform = nn.Linear(d_model, width, bias=settings.bias)
        # Output layer: tied to the embedding, or its own.
        tied = embedding.token.weight if settings.tied else None
        self.weight = nn.Parameter(torch.empty(vocab, width)) if tied is None else tied
        self.bias = nn.Parameter(torch.zeros(vocab)) if bias else None
        self.width = d_model
        self.scale = d_model**-0.5 if settings.scale_logits else 1.0

    def _states(self, states: Tensor) -> Tensor:
        transformed: Tensor = self.transform(states[..., : self.width])
        return transformed * self.scale if self.scale != 1.0 else transformed

    def scores(self, states: Tensor) -> Tensor:
        """Return logits, (..., d_model) -> (..., vocab)."""
        return F.linear(self._states(states), self.weight, self.bias)

    def nll(self, states: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
        """Return the weighted cross-entropy; it never holds all logits at once."""
        return cross_entropy(self._states(states), self.weight, self.bias, targets, weights)

    def sample_tokens(self, states: Tensor, uniform_draws: Tensor) -> Tensor:
        """Return tokens sampled from the softmax."""
        return sample_tokens(self._states(states), self.weight, self.bias, uniform_draws)


def target_indices(batch: Batch) -> Tensor:
    """Return the indices of positive weight in the flattened batch; (predictions,) int64."""
    indices: Tensor = batch.weights.flatten().nonzero().squeeze(1)
    return indices
