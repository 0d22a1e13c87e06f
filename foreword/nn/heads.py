"""The head that predicts tokens, and the one loss of all objectives that predict them."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from foreword.nn.cross_entropy import cross_entropy
from foreword.nn.drawing import draw
from foreword.nn.embedding import Embedding
from foreword.nn.norm import build_norm
from foreword.nn.settings import ModelSettings
from foreword.types import Batch, Hidden, Loss


class TokenHead(nn.Module):
    """States to scores over the vocabulary.

    Args:
        settings: of the backbone; says whether the output layer is its embedding.
        embedding: of the backbone.
        transform: a dense layer, GELU (the backbone's, if by tanh) and LayerNorm before the output
            layer (BERT).
        bias: a bias per token.
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
        if not settings.output.is_full:
            raise ValueError("output: the objective has a layer of its own here; use 'softmax'")
        vocab, width = embedding.token.num_embeddings, embedding.token.embedding_dim
        d_model = settings.token_width
        if not settings.tied and not transform:
            width = d_model
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
        tied = embedding.token.weight if settings.tied else None
        self.weight = nn.Parameter(torch.empty(vocab, width)) if tied is None else tied
        self.bias = nn.Parameter(torch.zeros(vocab)) if bias else None
        self.width = d_model
        self.scale = d_model**-0.5 if settings.scale_logits else 1.0

    def _states(self, states: Tensor) -> Tensor:
        transformed: Tensor = self.transform(states[..., : self.width])
        return transformed * self.scale if self.scale != 1.0 else transformed

    def forward(self, states: Tensor) -> Tensor:
        """(..., d_model) -> logits (..., vocab)."""
        return F.linear(self._states(states), self.weight, self.bias)

    def loss(self, hidden: Hidden, batch: Batch) -> Loss:
        """Cross-entropy where the batch's weights are positive; the rest is not computed.

        Args:
            hidden: states of the places that the batch has targets for.
            batch: with targets and weights.
        """
        where = scored(batch)
        weights = batch.weights.flatten()[where]
        chosen = self._states(hidden.states.flatten(0, 1)[where])
        total = cross_entropy(
            chosen, self.weight, self.bias, batch.targets.flatten()[where], weights
        )
        return Loss(total, weights.sum(), carried=hidden.carried)

    @torch.no_grad()
    def draw(self, hidden: Hidden, batch: Batch) -> Tensor:
        """A token for each place whose weight is positive, drawn by `batch.noise`.

        Args:
            hidden: states of the places that the batch has targets for.
            batch: with weights and noise.

        Returns:
            (predictions,) int64, in the order of rows and places.
        """
        where = scored(batch)
        chosen = self._states(hidden.states.flatten(0, 1)[where])
        return draw(chosen, self.weight, self.bias, batch.noise.flatten()[where])


def scored(batch: Batch) -> Tensor:
    """Which places have weight, in the flattened batch; (predictions,) int64."""
    where: Tensor = batch.weights.flatten().nonzero().squeeze(1)
    return where
