"""Whether vectors of words can be reckoned with: king - man + woman."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
from annotated_types import Interval

from foreword.probes._contract import Finding, ProbedModel, Row
from foreword.probes._marks import MAX_RUNS, run_style, title
from foreword.probes._tables import require_some, table_of
from foreword.ranges import LARGEST, Ranged
from foreword.types import Array
from foreword.vectors.questions import AnalogySection, read_analogies
from foreword.vectors.table import WordTable

MEANING, GRAMMAR, ALL = "semantic", "syntactic", "all"


@dataclass(frozen=True)
class Analogies(Ranged):
    """a is to b as c is to which word? The one nearest to b - a + c, none of the three (3CosAdd).

    The vectors are those that enter the model: of word2vec its own, of any other its embeddings.
    A question with a word that is none of the vocabulary's is left out, and counted.

    Attributes:
        file: of questions, four words a line, sections headed `: name`, those of grammar
            `: gram...`, like Google's `questions-words.txt`; a small list of ours if unsaid.
        most: of so many of the most frequent words one is chosen.

    Reference: Mikolov et al. 2013a, section 4.1; Levy & Goldberg 2014, section 3.
    """

    reads_text: ClassVar[bool] = False

    file: str = ""
    most: Annotated[int, Interval(ge=4, le=LARGEST)] = 30_000

    def measure(self, models: Sequence[ProbedModel]) -> Finding:
        """The share that is right, by section, of each model.

        Raises:
            UserError: a list that cannot be read, or a model without vectors of words, or that
                knows the words of none of the questions.
        """
        sections = read_analogies(self.file or None)
        tables = [table_of(probed) for probed in models]
        asked = [[_known_questions(table, s, self.most) for s in sections] for table in tables]
        for probed, known in zip(models, asked, strict=True):
            require_some(probed, sum(map(len, known)), "question could be asked")
        details: list[Row] = []
        rows: list[Row] = []
        for probed, table, known in zip(models, tables, asked, strict=True):
            found = [
                (_count_right(table, questions, self.most), len(questions), len(s.questions))
                for s, questions in zip(sections, known, strict=True)
            ]
            groups = [(s.name, [f]) for s, f in zip(sections, found, strict=True)]
            details += [_row(probed.label, name, group) for name, group in groups]
            pairs = list(zip(sections, found, strict=True))
            totals = {
                MEANING: [f for s, f in pairs if not s.is_grammar],
                GRAMMAR: [f for s, f in pairs if s.is_grammar],
                ALL: found,
            }
            rows += [_row(probed.label, name, group) for name, group in totals.items()]
        return Finding(
            title="analogies: the share of questions that b - a + c answers",
            rows=rows,
            details=details,
            notes=["left out: questions with a word that is none of the model's vocabulary"],
            plot=lambda figure: _plot(figure, details),
        )


def _known_questions(table: WordTable, section: AnalogySection, most: int) -> Array:
    """The questions that can be asked, as places of words; (questions, 4) int64."""
    places = [[table.index_of(word) for word in question] for question in section.questions]
    known = [q for q in places if all(p is not None and p < most for p in q)]
    return np.array(known, dtype=np.int64).reshape(-1, 4)


def _count_right(table: WordTable, questions: Array, most: int) -> int:
    """How many are answered."""
    return int((table.complete(questions[:, :3], most) == questions[:, 3]).sum())


def _row(run: str, section: str, found: Sequence[tuple[int, int, int]]) -> Row:
    """A line of the table, of questions right, asked and there are."""
    right, asked, given = (sum(one[n] for one in found) for n in range(3))
    accuracy = right / asked if asked else None
    numbers = {"accuracy": accuracy, "right": right, "asked": asked, "left_out": given - asked}
    return {"run": run, "section": section, **numbers}


def _plot(figure: Any, details: Sequence[Row]) -> None:
    """Bars of the share that is right for each section, the runs side by side."""
    sections = list(dict.fromkeys(str(row["section"]) for row in details))
    names = list(dict.fromkeys(str(row["run"]) for row in details))
    shown = names[:MAX_RUNS]
    height = 0.8 / len(shown)
    figure.set_size_inches(7.6, max(3.0, 1.6 + 0.22 * len(sections) * len(shown)))
    axes = figure.subplots()
    for n, run in enumerate(shown):
        of = [row for row in details if row["run"] == run]
        places = np.arange(len(sections)) + (n - (len(shown) - 1) / 2) * height
        right, asked = (sum(row[key] for row in of) for key in ("right", "asked"))
        bars = axes.barh(
            places,
            [row["accuracy"] or 0.0 for row in of],
            height=height,
            color=run_style(n)["color"],
            label=f"{run} ({right:,} of {asked:,})",
        )
        counts = [f"{r['right']} of {r['asked']}" if r["asked"] else "not asked" for r in of]
        axes.bar_label(bars, counts, padding=3, fontsize=7)
    axes.set_yticks(range(len(sections)), sections)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.15 * max(0.1, *(row["accuracy"] or 0.0 for row in details)))
    axes.set_xlabel("accuracy: questions right of those asked")
    axes.set_title(title("Analogies: a is to b as c is to which word?", len(names)))
    figure.legend(loc="outside lower center", ncols=2, frameon=False)
