"""Whether word vectors are similar where people find the words similar."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from foreword.evaluation.statistics import rank_correlation
from foreword.probes._contract import FilePath, Finding, ProbedModel, Row
from foreword.probes._marks import MAX_RUNS, run_style, title
from foreword.probes._tables import require_some, table_of
from foreword.vectors.questions import read_pairs


@dataclass(frozen=True)
class Similarity:
    """Spearman's rank correlation between the cosines of word pairs and people's ratings.

    The vectors are the model's input vectors: those of word2vec, or the embeddings of any other
    model, averaged over the pieces of a word. Pairs with an unknown word are left out and counted.

    Attributes:
        file: file of pairs, two words and a rating a line, like `wordsim353.txt`; default: a small
            list of our own, rated 0 to 3.

    Reference: Finkelstein et al. 2002, section 4 (WordSim-353).
    """

    reads_text: ClassVar[bool] = False

    file: FilePath = ""

    def measure(self, models: Sequence[ProbedModel]) -> Finding:
        """Measure the correlation for each model, and the cosine of each pair.

        Raises:
            UserError: the list cannot be read, or a model has no word vectors or knows the words of
                no pair.
        """
        # The cosines; every model must have some.
        pairs = read_pairs(self.file or None)
        tables = [table_of(probed) for probed in models]
        measured = [[table.similarity(*pair.words) for pair in pairs] for table in tables]
        for probed, cosines in zip(models, measured, strict=True):
            count = sum(cosine is not None for cosine in cosines)
            require_some(probed, count, "pair could be compared")
        # Their correlation with the ratings.
        details: list[Row] = []
        rows: list[Row] = []
        for probed, cosines in zip(models, measured, strict=True):
            for pair, cosine in zip(pairs, cosines, strict=True):
                numbers = {"rating": pair.rating, "cosine": cosine}
                details.append({"run": probed.label, "pair": " ".join(pair.words), **numbers})
            values = [(p.rating, c) for p, c in zip(pairs, cosines, strict=True) if c is not None]
            counts = {"pairs": len(values), "left_out": len(pairs) - len(values)}
            correlation = rank_correlation(*np.array(values).T)
            rows.append({"run": probed.label, "spearman": correlation, **counts})
        return Finding(
            title="similarity: rank correlation of cosines with people's ratings",
            rows=rows,
            details=details,
            notes=["left out: pairs with a word outside the model's vocabulary"],
            plot=lambda figure: _plot(figure, rows, details),
            measure="spearman",
            scores={row["run"]: row["spearman"] for row in rows},
        )


def _plot(figure: Any, rows: Sequence[Row], details: Sequence[Row]) -> None:
    """Plot the cosine of each pair against its rating."""
    figure.set_size_inches(7.6, 5.2)
    axes = figure.subplots()
    for number, row in enumerate(rows[:MAX_RUNS]):
        of_run = [d for d in details if d["run"] == row["run"] and d["cosine"] is not None]
        ratings, cosines = ([d[key] for d in of_run] for key in ("rating", "cosine"))
        correlation = "–" if row["spearman"] is None else f"{row['spearman']:.2f}"
        total = row["pairs"] + row["left_out"]
        label = f"{row['run']}: Spearman {correlation}, {row['pairs']:,} of {total:,} pairs"
        axes.scatter(ratings, cosines, s=14, alpha=0.7, label=label, **run_style(number))
    axes.set_xlabel("people's rating of the pair")
    axes.set_ylabel("cosine of the pair's vectors")
    axes.set_title(title("Similarity: do cosines agree with people's ratings?", len(rows)))
    axes.grid(alpha=0.3)
    figure.legend(loc="outside lower center", frameon=False)
