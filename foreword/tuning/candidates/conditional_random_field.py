"""Tags that depend on the one before: a linear chain over the counts of each word's features."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from safetensors.numpy import load_file, save_file
from torch import Tensor

from foreword.runs.trained_model import TrainedModel
from foreword.settings.ranges import Count, Positive
from foreword.tuning.best.averages import TINY
from foreword.tuning.best.counts import Counts, FittedCounts
from foreword.tuning.best.linear import LinearMap
from foreword.tuning.best.material import Material
from foreword.tuning.candidates._contract import Fitted, Learner
from foreword.types import Array

AT_ONCE = 256  # sentences of about one length
TRANSITIONS = "transitions.safetensors"


@dataclass(frozen=True)
class FittedChain(Fitted):
    """A linear chain.

    Attributes:
        words: the counts of each word's features, and the score of each tag by them.
        transitions: the score of a tag (column) after another (row), (tags, tags) float32.
    """

    words: FittedCounts
    transitions: Array

    def outputs(self, material: Material) -> Array:
        """Return the logarithm of each tag's probability, given the whole sentence."""
        linear = self.words.linear
        assert linear is not None
        scores = torch.from_numpy(linear(self.words.counts.features(material.counted))).float()
        scores.requires_grad_()
        chain = _Chain(material.begins)
        # The gradient of the sum over all paths is the share of those through each tag.
        total = chain.all_paths(scores, torch.from_numpy(self.transitions)).sum()
        (shares,) = torch.autograd.grad(total, scores)
        return np.asarray(np.log(np.maximum(shares.double().numpy(), TINY)))

    def save(self, folder: Path) -> None:
        self.words.save(folder)
        save_file({"transitions": self.transitions}, folder / TRANSITIONS)


@dataclass(frozen=True)
class ConditionalRandomField(Learner):
    """A linear-chain conditional random field on a word, its affixes, and its neighbours.

    Tags of entities follow one another by rules (no I- after O), which words alone do not know.

    Attributes:
        penalty: of the squared weights.
        rounds: the most iterations of L-BFGS.

    Also called: CRF.
    Reference: Lafferty et al. 2001, "Conditional Random Fields".
    Differs from the paper: L-BFGS (Sha and Pereira 2003), and features weighted by TF-IDF.
    """

    title: ClassVar[str] = "conditional random field"
    reads_model: ClassVar[bool] = False

    penalty: Positive = 0.05
    rounds: Count = 40

    def misplaced(self, material: Material) -> str:
        """Tags alone stand in a chain."""
        is_tagged = material.form == "classes" and isinstance(material.counted[0], list)
        return "" if is_tagged else "for tags of words alone"

    def fit(self, material: Material, seed: int) -> FittedChain:
        """Count the features and fit all scores, but for sentences that lack a tag."""
        edges, targets = material.begins, material.targets
        whole = [n for n, (a, b) in enumerate(pairwise(edges)) if (targets[a:b] >= 0).all()]
        material = material.part(np.asarray(whole, np.int64))
        counts, sparse = Counts.of(material, "words", 1, "tf_idf")
        rows, columns, values = map(torch.from_numpy, (sparse.indptr, sparse.indices, sparse.data))
        with warnings.catch_warnings():  # that sparse tensors are in beta
            warnings.simplefilter("ignore", UserWarning)
            x = torch.sparse_csr_tensor(rows, columns, values, sparse.shape)
        right, tags = torch.from_numpy(material.targets).long(), len(material.labels)
        chain = _Chain(material.begins)
        weights, bias, transitions = parameters = [
            torch.zeros(shape, requires_grad=True)
            for shape in ((sparse.shape[1], tags), (tags,), (tags, tags))
        ]
        optimizer = torch.optim.LBFGS(
            parameters, max_iter=self.rounds, history_size=10, line_search_fn="strong_wolfe"
        )

        def loss() -> Tensor:
            optimizer.zero_grad()
            scores = x @ weights + bias
            path = scores.gather(1, right[:, None]).sum() + chain.on_path(right, transitions)
            nats = chain.all_paths(scores, transitions).sum() - path
            total: Tensor = nats + self.penalty / 2 * sum((p**2).sum() for p in parameters)
            total.backward()  # type: ignore[no-untyped-call]
            return total

        optimizer.step(loss)  # type: ignore[no-untyped-call]
        learned: list[Any] = [p.detach().numpy() for p in parameters]
        return FittedChain(FittedCounts(counts, LinearMap(*learned[:2])), learned[2])

    @classmethod
    def read(cls, folder: Path, trained: TrainedModel) -> FittedChain:
        return FittedChain(FittedCounts.read(folder), **load_file(folder / TRANSITIONS))


class _Chain:
    """Sentences as chains, those of about one length together."""

    def __init__(self, edges: Array) -> None:
        self.edges = edges
        order = np.argsort(np.diff(edges), kind="stable")
        self.groups = [order[n : n + AT_ONCE] for n in range(0, len(order), AT_ONCE)]
        is_first = np.zeros(int(edges[-1]) + 1, bool)
        is_first[edges] = True
        self.later = torch.from_numpy(np.flatnonzero(~is_first[:-1]))

    def on_path(self, tags: Tensor, transitions: Tensor) -> Tensor:
        """Return the sum of the transitions between tags, ()."""
        return transitions[tags[self.later - 1], tags[self.later]].sum()

    def all_paths(self, scores: Tensor, transitions: Tensor) -> Tensor:
        """Return the logarithm of the sum over all paths of each sentence, (sentences,)."""
        totals = []
        for group in self.groups:
            begins, sizes = self.edges[group], np.diff(self.edges)[group]
            places = begins[:, None] + np.minimum(np.arange(sizes.max()), sizes[:, None] - 1)
            words = scores[torch.from_numpy(places)]
            sums = words[:, 0]
            for n in range(1, words.shape[1]):
                after = torch.logsumexp(sums[:, :, None] + transitions, dim=1) + words[:, n]
                sums = torch.where(torch.from_numpy(sizes > n)[:, None], after, sums)
            totals.append(torch.logsumexp(sums, dim=1))
        return torch.cat(totals)
