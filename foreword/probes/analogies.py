"""Whether vectors of words can be reckoned with: king - man + woman."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from foreword.probes._contract import Finding, Row, Specimen
from foreword.train.word_table import word_table
from foreword.vectors.questions import Section, read_analogies
from foreword.vectors.table import WordTable

MEANING, GRAMMAR, ALL = "semantic", "syntactic", "all"


@dataclass(frozen=True)
class Analogies:
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
    most: int = 30_000

    def __post_init__(self) -> None:
        if self.most < 4:
            raise ValueError(f"most: must be at least 4 words, got {self.most}")

    def measure(self, specimens: Sequence[Specimen]) -> Finding:
        """The share that is right, by section, of each model.

        Raises:
            UserError: a list that cannot be read, or a model without vectors of words.
        """
        sections = read_analogies(self.file or None)
        details: list[Row] = []
        rows: list[Row] = []
        for specimen in specimens:
            table = word_table(specimen.subject.model, specimen.subject.tokenizer)
            found = [_ask(table, section, self.most) for section in sections]
            groups = [(s.name, [f]) for s, f in zip(sections, found, strict=True)]
            details += [_row(specimen.name, name, group) for name, group in groups]
            pairs = list(zip(sections, found, strict=True))
            totals = {
                MEANING: [f for s, f in pairs if not s.is_grammar],
                GRAMMAR: [f for s, f in pairs if s.is_grammar],
                ALL: found,
            }
            rows += [_row(specimen.name, name, group) for name, group in totals.items()]
        return Finding(
            title="analogies: the share of questions that b - a + c answers",
            rows=rows,
            details=details,
            notes=["left out: questions with a word that is none of the model's vocabulary"],
            draw=lambda figure: draw_shares(figure, details, "section", "accuracy"),
        )


def _ask(table: WordTable, section: Section, most: int) -> tuple[int, int, int]:
    """Of a section: questions right, asked, left out."""
    places = [[table.place(word) for word in question] for question in section.questions]
    known = [q for q in places if all(p is not None and p < most for p in q)]
    asked = np.array(known, dtype=np.int64).reshape(-1, 4)
    right = int((table.complete(asked[:, :3], most) == asked[:, 3]).sum())
    return right, len(asked), len(places) - len(asked)


def _row(run: str, section: str, found: Sequence[tuple[int, int, int]]) -> Row:
    right, asked, left_out = (sum(one[n] for one in found) for n in range(3))
    accuracy = right / asked if asked else None
    numbers = {"accuracy": accuracy, "right": right, "asked": asked, "left_out": left_out}
    return {"run": run, "section": section, **numbers}


def draw_shares(figure: Any, details: Sequence[Row], by: str, value: str) -> None:
    """Bars of `value` for each `by`, the runs side by side."""
    axes = figure.subplots()
    groups = list(dict.fromkeys(str(row[by]) for row in details))
    runs = list(dict.fromkeys(str(row["run"]) for row in details))
    for n, run in enumerate(runs):
        shown: Mapping[str, Any] = {str(r[by]): r[value] for r in details if r["run"] == run}
        places = np.arange(len(groups)) + (n - (len(runs) - 1) / 2) * 0.8 / len(runs)
        axes.barh(places, [shown[g] or 0.0 for g in groups], height=0.8 / len(runs), label=run)
    axes.set_yticks(range(len(groups)), groups)
    axes.invert_yaxis()
    axes.set_xlabel(value)
    axes.legend()
