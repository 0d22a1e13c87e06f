"""The adaptive softmax: rare tokens are in clusters, computed only where they are needed."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, cast

import torch
from annotated_types import Interval
from torch import Tensor, nn
from torch.nn import functional as F

from foreword.nn.cross_entropy import cross_entropy
from foreword.nn.embedding import Embedding
from foreword.nn.heads import HeadInput, VocabularyHead
from foreword.nn.lm_heads._contract import LMHeadKind
from foreword.settings.ranges import Count


@dataclass(frozen=True)
class Adaptive(LMHeadKind):
    """Adaptive softmax: a first one over frequent tokens and clusters, then one in each cluster.

    Lower ids are taken to be more frequent, as in a vocabulary of words sorted by count. With
    cutoffs 2,000 and 10,000, the first softmax has 2,000 tokens and 2 clusters: tokens 2,000 to
    9,999 and the rest. With `tied`, the tokens' rows are the embedding's.

    Attributes:
        cutoffs: the first token of each cluster, ascending.
        factor: by which the states of each cluster are narrower than the one before; the first
            cluster's than the model's. It must be 1 if the model is tied.

    Also called: adaptive softmax.
    Reference: Grave et al. 2017, section 4.3.
    """

    cutoffs: tuple[Count, ...] = (2_000, 10_000)
    factor: Annotated[float, Interval(ge=1, le=1e6)] = 4.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.cutoffs or any(a >= b for a, b in pairwise(self.cutoffs)):
            raise ValueError(f"cutoffs: expected one or more, ascending from 1, got {self.cutoffs}")

    def build(self, states: HeadInput, embedding: Embedding, *, is_tied: bool) -> VocabularyHead:
        """Return the head.

        Raises:
            ValueError: a cutoff is beyond the vocabulary, or tied rows would have to be narrower.
        """
        return AdaptiveHead(self, states, embedding, is_tied=is_tied)


class AdaptiveHead(VocabularyHead):
    """States to log-probabilities over the vocabulary.

    Args:
        kind: cutoffs and factor.
        states: what it reads of the states.
        embedding: the backbone's embedding of tokens.
        is_tied: whether the tokens' rows are the embedding's.
    """

    def __init__(
        self, kind: Adaptive, states: HeadInput, embedding: Embedding, *, is_tied: bool
    ) -> None:
        super().__init__()
        vocab = embedding.token.num_embeddings
        if kind.cutoffs[-1] >= vocab:
            raise ValueError(
                f"lm_head.cutoffs: the vocabulary has {vocab:,} tokens, so the last must be below, "
                f"got {kind.cutoffs[-1]:,}"
            )
        if is_tied and kind.factor != 1:
            raise ValueError(
                "lm_head.factor: must be 1 where the output layer is the embedding; got "
                f"{kind.factor:g}, which requires tied=false"
            )
        self.bounds = (0, *kind.cutoffs, vocab)
        sizes = [end - start for start, end in pairwise(self.bounds)]
        width = embedding.token.embedding_dim if is_tied else states.width
        self.transform = states.project(width)
        self.width, self.scale = states.width, states.scale
        widths = [max(1, int(width / kind.factor**n)) for n in range(1, len(sizes))]
        self.clusters = nn.Linear(width, len(widths), bias=False)
        self.projections = nn.ModuleList(nn.Linear(width, size, bias=False) for size in widths)
        self.tied = embedding.token.weight if is_tied else None
        each = [] if is_tied else zip([width, *widths], sizes, strict=True)
        self.cluster_layers = nn.ModuleList(
            nn.Linear(in_width, size, bias=False) for in_width, size in each
        )

    def scores(self, states: Tensor) -> Tensor:
        """Return log-probabilities, (..., d_model) -> (..., vocab)."""
        x = self._states(states)
        # Frequent tokens and clusters; then each cluster's tokens, given the cluster.
        first = F.linear(x, self._first()).log_softmax(-1)  # (..., cutoffs[0] + clusters)
        common = self.bounds[1]
        log_probs = [first[..., :common]]
        for n, project in enumerate(self.projections):
            inside = F.linear(project(x), self._rows(n + 1)).log_softmax(-1)
            log_probs.append(first[..., common + n, None] + inside)
        return torch.cat(log_probs, dim=-1)

    def nll(self, states: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
        """Return the weighted cross-entropy; each cluster is computed only for its own targets."""
        x = self._states(states)
        edges = torch.tensor(self.bounds[1:-1], device=targets.device)
        cluster = torch.bucketize(targets, edges, right=True)  # 0 for the frequent tokens
        common = self.bounds[1]
        first = torch.where(cluster == 0, targets, common - 1 + cluster)
        total = cross_entropy(x, self._first(), None, first, weights)
        for n, project in enumerate(self.projections, 1):
            members = (cluster == n).nonzero().squeeze(1)
            inside = targets[members] - self.bounds[n]
            part = cross_entropy(project(x[members]), self._rows(n), None, inside, weights[members])
            total = total + part
        return total

    def _states(self, states: Tensor) -> Tensor:
        transformed: Tensor = self.transform(states[..., : self.width])
        return transformed * self.scale if self.scale != 1.0 else transformed

    def _rows(self, part: int) -> Tensor:
        """The output layer of the frequent tokens (part 0) or of a cluster, (tokens, width)."""
        if self.tied is None:
            return cast(nn.Linear, self.cluster_layers[part]).weight
        rows: Tensor = self.tied[self.bounds[part] : self.bounds[part + 1]]
        return rows

    def _first(self) -> Tensor:
        return torch.cat([self._rows(0), self.clusters.weight])
