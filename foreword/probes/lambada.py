"""Whether the last word of a passage is predicted: "... I met her at the __"."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from foreword.errors import UserError
from foreword.evaluation.passages import Passage, method_of, score_passages
from foreword.evaluation.prompting import PromptedModel
from foreword.probes._contract import FilePath
from foreword.probes._files import evenly, files_of, rows_of
from foreword.probes._suite import ALL, Answer, Question, Suite
from foreword.settings.ranges import CountOrZero
from foreword.tables.columns import text_of
from foreword.tables.files import IN_FOLDERS
from foreword.tables.read import read_table
from foreword.types import Array

TEXT = "text"  # the column of passages


@dataclass(frozen=True)
class Lambada(Suite):
    """How often the last word of a passage is predicted, which takes more than its last sentence.

    A word counts if each of its tokens is the likeliest one. `perplexity` is that of the word, in
    all of its tokens.

    Attributes:
        files: passages with a column `text`: a file, a folder or a pattern.
        limit: number of passages, evenly spaced; 0 for all.

    Reference: Paperno et al. 2016; Radford et al. 2019, section 3.3.
    """

    heading: ClassVar[str] = "LAMBADA: how often the last word of a passage is predicted"

    files: FilePath
    limit: CountOrZero = 0

    def questions(self) -> list[Question]:
        """Return the passages without their last words.

        Raises:
            UserError: there is no such file, or a passage has fewer than two words.
        """
        questions = []
        for file in files_of(self.files, "probe.files", IN_FOLDERS):
            for line, row in rows_of(read_table(file), [TEXT]):
                text = text_of(row.get(TEXT), f"{file}:{line}").strip()
                before, _, word = text.rpartition(" ")
                if not before.strip():
                    raise UserError(f"{file}:{line}: expected two words or more in {TEXT}")
                questions.append(Question(f"{file.name}:{line}", ALL, before, word))
        if not questions:
            raise UserError(f"probe.files: {self.files}: no passages in it")
        return list(evenly(questions, self.limit))

    def method(self, prompted: PromptedModel) -> str:
        """Return how the model scores words.

        Raises:
            UserError: it cannot.
        """
        return f"{method_of(prompted, ranks=True)}, of the last word"

    def answers(self, prompted: PromptedModel, questions: Sequence[Question]) -> Iterator[Answer]:
        """Yield whether each last word is the likeliest."""
        passages = [Passage(f" {q.answer}", before=q.text) for q in questions]
        scores = score_passages(prompted, passages, ranks=True)
        for question, score in zip(questions, scores, strict=True):
            is_right = score.is_likeliest
            response = question.answer if is_right else ""
            nats = (score.nats,)
            yield Answer(response, float(is_right), nats, score.unknown, nats, is_cut=score.is_cut)

    def further(self, values: Array) -> Mapping[str, float]:
        """Return the perplexity of the words."""
        nats = -float(values[:, 0].mean())
        return {"perplexity": math.exp(nats) if nats < 700 else math.nan}
