"""Whether vectors of words are near where people find the words near."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from scipy.stats import spearmanr

from foreword.probes._contract import Finding, Row, Specimen
from foreword.train.word_table import word_table
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

    def measure(self, specimens: Sequence[Specimen]) -> Finding:
        """The correlation for each model, and the cosine of each pair.

        Raises:
            UserError: a list that cannot be read, or a model without vectors of words.
        """
        pairs = read_pairs(self.file or None)
        details: list[Row] = []
        rows: list[Row] = []
        for specimen in specimens:
            table = word_table(specimen.subject.model, specimen.subject.tokenizer)
            cosines = [table.similarity(*pair.words) for pair in pairs]
            for pair, cosine in zip(pairs, cosines, strict=True):
                one = {"pair": " ".join(pair.words), "rating": pair.rating, "cosine": cosine}
                details.append({"run": specimen.name, **one})
            known = [(p.rating, c) for p, c in zip(pairs, cosines, strict=True) if c is not None]
            numbers = {"pairs": len(known), "left_out": len(pairs) - len(known)}
            rows.append({"run": specimen.name, "spearman": _correlation(known), **numbers})
        return Finding(
            title="similarity: rank correlation of cosines with people's ratings",
            rows=rows,
            details=details,
            notes=["left out: pairs with a word that is none of the model's vocabulary"],
            draw=lambda figure: _draw(figure, details),
        )


def _correlation(known: Sequence[tuple[float, float]]) -> float | None:
    """Spearman's, of ratings and cosines; None where it has no meaning."""
    if any(len(set(column)) < 2 for column in zip(*known, strict=True)) or len(known) < 2:
        return None
    ratings, cosines = zip(*known, strict=True)
    return float(spearmanr(ratings, cosines).statistic)


def _draw(figure: Any, details: Sequence[Row]) -> None:
    axes = figure.subplots()
    for run in dict.fromkeys(row["run"] for row in details):
        shown = [row for row in details if row["run"] == run and row["cosine"] is not None]
        ratings, cosines = ([row[key] for row in shown] for key in ("rating", "cosine"))
        axes.scatter(ratings, cosines, s=10, alpha=0.7, label=run)
    axes.set_xlabel("people's rating")
    axes.set_ylabel("cosine")
    axes.legend()
