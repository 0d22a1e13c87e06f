"""Norms of token embeddings, as an example of a probe in a plug-in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from foreword.probes._contract import Finding, ProbedModel, Row
from foreword.settings.ranges import Count, Ranged


@dataclass(frozen=True)
class EmbeddingNorms(Ranged):
    """How long the vectors of tokens are: their norms, from the shortest to the longest.

    Attributes:
        points: quantiles that are measured, evenly spaced.
    """

    reads_text: ClassVar[bool] = False

    points: Count = 21

    def measure(self, models: Sequence[ProbedModel]) -> Finding:
        """Measure the norms of each model's embedding.

        Raises:
            UserError: a model has no embedding.
        """
        tables = [model.trained.model.backbone.embedding.token.weight.detach() for model in models]
        shares = np.linspace(0, 1, self.points)
        rows: list[Row] = []
        details: list[Row] = []
        for model, table in zip(models, tables, strict=True):
            norms = np.quantile(table.norm(dim=-1).double().cpu().numpy(), shares)
            least, median, greatest = norms[0], np.median(norms), norms[-1]
            numbers = {"least": least, "median": median, "greatest": greatest}
            rows.append({"run": model.label, **{k: float(v) for k, v in numbers.items()}})
            details += [
                {"run": model.label, "share": float(share), "norm": float(norm)}
                for share, norm in zip(shares, norms, strict=True)
            ]
        return Finding(
            title="norms of token embeddings",
            rows=rows,
            details=details,
            notes=["share: of the vocabulary with a shorter vector"],
            plot=lambda figure: _plot(figure, details),
        )


def _plot(figure: Any, details: Sequence[Row]) -> None:
    """Plot the norms of each run against the share of the vocabulary."""
    axes = figure.subplots()
    for run in dict.fromkeys(row["run"] for row in details):
        own = [row for row in details if row["run"] == run]
        axes.plot([row["share"] for row in own], [row["norm"] for row in own], label=run)
    axes.set_xlabel("share of the vocabulary with a shorter vector")
    axes.set_ylabel("norm of the vector")
    axes.set_title("Norms of token embeddings")
    figure.legend(loc="outside lower center", frameon=False)
