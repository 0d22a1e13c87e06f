"""Whether vectors of words are near where people find the words near."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from scipy.stats import spearmanr

from foreword.probes._contract import Finding, ProbedModel, Row
from foreword.probes._marks import MAX_RUNS, run_style, title
from foreword.probes._tables import require_some, table_of
from foreword.vectors.questions import read_pairs


@dataclass(frozen=True)
class Similarity:
    """The rank correlation (Spearman's) of the cosines of pairs of words with people's ratings.

    The vectors are those that enter the model: of word2vec its own, of any other its embeddings,
    their mean where a word is cut into several. A pair with an unknown word is left out, and
    counted.

    Attributes:
        file: of pairs, two words and a rating a line, like `wordsim353.txt`; a small list of ours,
            rated 0 to 3, if unsaid.

    Reference: Finkelstein et al. 2002, section 4 (WordSim-353).
    """

    reads_text: ClassVar[bool] = False

    file: str = ""

    def measure(self, models: Sequence[ProbedModel]) -> Finding:
        """The correlation for each model, and the cosine of each pair.

        Raises:
            UserError: a list that cannot be read, or a model without vectors of words, or that
                knows the words of none of the pairs.
        """
        pairs = read_pairs(self.file or None)
        tables = [table_of(probed) for probed in models]
        measured = [[table.similarity(*pair.words) for pair in pairs] for table in tables]
        for probed, cosines in zip(models, measured, strict=True):
            known = sum(cosine is not None for cosine in cosines)
            require_some(probed, known, "pair could be compared")
        details: list[Row] = []
        rows: list[Row] = []
        for probed, cosines in zip(models, measured, strict=True):
            for pair, cosine in zip(pairs, cosines, strict=True):
                one = {"pair": " ".join(pair.words), "rating": pair.rating, "cosine": cosine}
                details.append({"run": probed.label, **one})
            both = [(p.rating, c) for p, c in zip(pairs, cosines, strict=True) if c is not None]
            numbers = {"pairs": len(both), "left_out": len(pairs) - len(both)}
            rows.append({"run": probed.label, "spearman": _correlation(both), **numbers})
        return Finding(
            title="similarity: rank correlation of cosines with people's ratings",
            rows=rows,
            details=details,
            notes=["left out: pairs with a word that is none of the model's vocabulary"],
            plot=lambda figure: _plot(figure, rows, details),
        )


def _correlation(known: Sequence[tuple[float, float]]) -> float | None:
    """Spearman's, of ratings and cosines; None where it has no meaning: of two it is 1 or -1."""
    if any(len(set(column)) < 2 for column in zip(*known, strict=True)) or len(known) < 3:
        return None
    ratings, cosines = zip(*known, strict=True)
    return float(spearmanr(ratings, cosines).statistic)


def _plot(figure: Any, rows: Sequence[Row], details: Sequence[Row]) -> None:
    """Ratings against cosines, a mark for each pair."""
    figure.set_size_inches(7.6, 5.2)
    axes = figure.subplots()
    for number, row in enumerate(rows[:MAX_RUNS]):
        of = [d for d in details if d["run"] == row["run"] and d["cosine"] is not None]
        ratings, cosines = ([d[key] for d in of] for key in ("rating", "cosine"))
        rank = "-" if row["spearman"] is None else f"{row['spearman']:.2f}"
        given = row["pairs"] + row["left_out"]
        label = f"{row['run']}: Spearman {rank}, {row['pairs']:,} of {given:,} pairs"
        axes.scatter(ratings, cosines, s=14, alpha=0.7, label=label, **run_style(number))
    axes.set_xlabel("people's rating of a pair")
    axes.set_ylabel("cosine of its vectors")
    axes.set_title(title("Similarity: are words near that people find near?", len(rows)))
    axes.grid(alpha=0.3)
    figure.legend(loc="outside lower center", frameon=False)
