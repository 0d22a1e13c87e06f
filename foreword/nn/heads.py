"""The head that predicts tokens, and the loss of all objectives that predict them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from foreword.nn.cross_entropy import cross_entropy
from foreword.nn.embedding import Embedding
from foreword.nn.linear import WeightModule
from foreword.nn.sample_tokens import sample_tokens
from foreword.types import Batch, Hidden, Loss, UniformDraws


@dataclass(frozen=True)
class HeadInput:
    """The part of the states that a head reads, and how.

    Attributes:
        width: the number of columns that heads read, the first ones of the states (with two
            directions, the forward one).
        scale: factor of the states before the output layer.
        bias: whether the linear maps before the output layer have biases.
    """

    width: int
    scale: float = 1.0
    bias: bool = True

    def project(self, width: int) -> nn.Module:
        """Return a linear map from the states to another width; the identity for their own."""
        if width == self.width:
            return nn.Identity()
        return nn.Linear(self.width, width, bias=self.bias)


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
            weights: weights of the targets, (predictions,).
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
        """Return a token sampled at each position of positive weight, by its `UniformDraws`.

        Args:
            hidden: states at the positions that the batch has targets for.
            batch: with weights and `UniformDraws`.

        Returns:
            (predictions,) int64, in the order of rows and positions.
        """
        where = target_indices(batch)
        draws = batch.require(UniformDraws).draws.flatten()[where]
        tokens: Tensor = self(hidden.states.flatten(0, 1)[where], uniform_draws=draws)
        return tokens


class TokenHead(VocabularyHead, WeightModule):
    """The full softmax: one score for each token of the vocabulary.

    Args:
        states: the part of the states that it reads, and how.
        embedding: the backbone's embedding of tokens.
        is_tied: whether the embedding is the output layer.
        transform: layers from these states to the width of the embedding (BERT); None for none,
            but a linear map where a tied embedding is narrower.
        bias: whether each token has a bias.
    """

    def __init__(
        self,
        states: HeadInput,
        embedding: Embedding,
        *,
        is_tied: bool,
        transform: nn.Module | None = None,
        bias: bool = False,
    ) -> None:
        super().__init__()
        vocab, width = embedding.token.num_embeddings, embedding.token.embedding_dim
        if not is_tied and transform is None:
            width = states.width
        self.transform = states.project(width) if transform is None else transform
        # Output layer: tied to the embedding, or its own.
        tied = embedding.token.weight if is_tied else None
        self.weight = nn.Parameter(torch.empty(vocab, width)) if tied is None else tied
        self.bias = nn.Parameter(torch.zeros(vocab)) if bias else None
        self.width, self.scale = states.width, states.scale

    def forward(
        self,
        states: Tensor,
        targets: Tensor | None = None,
        weights: Tensor | None = None,
        uniform_draws: Tensor | None = None,
        *,
        is_transformed: bool = False,
    ) -> Tensor:
        """Return scores, loss or samples, as `VocabularyHead.forward` does.

        With `is_transformed`, the states are another head's (..., width of the output layer), which
        uses this output layer.
        """
        if not is_transformed:
            states = self.transform(states[..., : self.width])
        if self.scale != 1.0:
            states = states * self.scale
        return super().forward(states, targets, weights, uniform_draws)

    def scores(self, states: Tensor) -> Tensor:
        """Return the logits of transformed states, (..., width) -> (..., vocab)."""
        return self.product(states, self.bias)

    def nll(self, states: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
        """Return the weighted cross-entropy; it never holds all logits at once."""
        return cross_entropy(states, self.weight, self.bias, targets, weights)

    def sample_tokens(self, states: Tensor, uniform_draws: Tensor) -> Tensor:
        """Return tokens sampled from the softmax."""
        return sample_tokens(states, self.weight, self.bias, uniform_draws)


def target_indices(batch: Batch) -> Tensor:
    """Return the indices of positive weight in the flattened batch; (predictions,) int64."""
    indices: Tensor = batch.weights.flatten().nonzero().squeeze(1)
    return indices
