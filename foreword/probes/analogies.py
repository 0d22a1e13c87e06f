"""Whether analogies hold between word vectors: king - man + woman = queen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
from annotated_types import Interval

from foreword.probes._contract import FilePath, Finding, ProbedModel, Row
from foreword.probes._marks import MAX_RUNS, run_style, title
from foreword.probes._tables import require_some, table_of
from foreword.settings.ranges import LARGEST, Ranged
from foreword.types import Array
from foreword.vectors.questions import AnalogySection, read_analogies
from foreword.vectors.table import WordTable

MEANING, GRAMMAR, ALL = "semantic", "syntactic", "all"


@dataclass(frozen=True)
class Analogies(Ranged):
    """The accuracy on questions "a is to b as c is to which word?" by 3CosAdd.

    The answer is the word nearest to b - a + c other than a, b and c. The vectors are the model's
    input vectors: those of word2vec, or the embeddings of any other model. Questions with words
    outside the vocabulary are left out and counted.

    Attributes:
        file: file of questions, four words a line, in sections headed `: name`, or `: gram...` for
            grammar, like Google's `questions-words.txt`; default: a small list of our own.
        most: number of most frequent words among which the answer is chosen.

    Reference: Mikolov et al. 2013a, section 4.1; Levy & Goldberg 2014, section 3.
    """

    reads_text: ClassVar[bool] = False

    file: FilePath = ""
    most: Annotated[int, Interval(ge=4, le=LARGEST)] = 30_000

    def measure(self, models: Sequence[ProbedModel]) -> Finding:
        """Measure the accuracy of each model by section.

        Raises:
            UserError: the list cannot be read, or a model has no word vectors or knows the words of
                no question.
        """
        # The questions that each model can be asked; every model must have some.
        sections = read_analogies(self.file or None)
        tables = [table_of(probed) for probed in models]
        questions_of = [
            [_known_questions(table, s, self.most) for s in sections] for table in tables
        ]
        for probed, of_model in zip(models, questions_of, strict=True):
            require_some(probed, sum(map(len, of_model)), "question could be asked")
        # The answers, by section and in total.
        details: list[Row] = []
        rows: list[Row] = []
        for probed, table, of_model in zip(models, tables, questions_of, strict=True):
            counts = [
                (_count_right(table, questions, self.most), len(questions), len(s.questions))
                for s, questions in zip(sections, of_model, strict=True)
            ]
            by_section = list(zip(sections, counts, strict=True))
            details += [_row(probed.label, s.name, [count]) for s, count in by_section]
            totals = {
                MEANING: [count for s, count in by_section if not s.is_grammar],
                GRAMMAR: [count for s, count in by_section if s.is_grammar],
                ALL: counts,
            }
            rows += [_row(probed.label, name, group) for name, group in totals.items()]
        return Finding(
            title="analogies: the share of questions that b - a + c answers",
            rows=rows,
            details=details,
            notes=["left out: questions with a word outside the model's vocabulary"],
            plot=lambda figure: _plot(figure, details),
            measure="accuracy",
            scores={row["run"]: row["accuracy"] for row in rows if row["section"] == ALL},
        )


def _known_questions(table: WordTable, section: AnalogySection, most: int) -> Array:
    """Return the questions without unknown words, as indices of words; (questions, 4) int64."""
    indices = [[table.index_of(word) for word in question] for question in section.questions]
    questions = [q for q in indices if all(n is not None and n < most for n in q)]
    return np.array(questions, dtype=np.int64).reshape(-1, 4)


def _count_right(table: WordTable, questions: Array, most: int) -> int:
    """Return the number of questions answered correctly."""
    return int((table.complete(questions[:, :3], most) == questions[:, 3]).sum())


def _row(run: str, section: str, counts: Sequence[tuple[int, int, int]]) -> Row:
    """Return a row of the table from (right, asked, in the list) of one section or several."""
    right, asked, total = (sum(count[n] for count in counts) for n in range(3))
    accuracy = right / asked if asked else None
    numbers = {"accuracy": accuracy, "right": right, "asked": asked, "left_out": total - asked}
    return {"run": run, "section": section, **numbers}


def _plot(figure: Any, details: Sequence[Row]) -> None:
    """Plot the accuracy on each section as bars, the runs side by side."""
    sections = list(dict.fromkeys(str(row["section"]) for row in details))
    names = list(dict.fromkeys(str(row["run"]) for row in details))
    runs = names[:MAX_RUNS]
    height = 0.8 / len(runs)
    figure.set_size_inches(7.6, max(3.0, 1.6 + 0.22 * len(sections) * len(runs)))
    axes = figure.subplots()
    for n, run in enumerate(runs):
        rows = [row for row in details if row["run"] == run]
        y = np.arange(len(sections)) + (n - (len(runs) - 1) / 2) * height
        right, asked = (sum(row[key] for row in rows) for key in ("right", "asked"))
        bars = axes.barh(
            y,
            [row["accuracy"] or 0.0 for row in rows],
            height=height,
            color=run_style(n)["color"],
            label=f"{run} ({right:,} of {asked:,})",
        )
        counts = [f"{r['right']} of {r['asked']}" if r["asked"] else "not asked" for r in rows]
        axes.bar_label(bars, counts, padding=3)
    axes.set_yticks(range(len(sections)), sections)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.15 * max(0.1, *(row["accuracy"] or 0.0 for row in details)))
    axes.set_xlabel("accuracy: share of the asked questions that are right")
    axes.set_title(title("Analogies: a is to b as c is to which word?", len(names)))
    figure.legend(loc="outside lower center", ncols=2, frameon=False)
