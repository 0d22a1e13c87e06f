"""Multiple choice without training: which option is the likeliest continuation of a question."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from foreword.errors import UserError
from foreword.evaluation.passages import Passage, method_of
from foreword.evaluation.prompting import PromptedModel
from foreword.probes._contract import FilePath
from foreword.probes._files import evenly, files_of, rows_of
from foreword.probes._scoring import score_groups
from foreword.probes._suite import ALL, Answer, Question, Suite, best
from foreword.settings.ranges import CountOrZero
from foreword.tables import choice, race
from foreword.tables.files import IN_FOLDERS
from foreword.tables.read import read_table
from foreword.tables.table import chosen_columns
from foreword.types import Array

CONTEXT, QUESTION = "{context}", "{question}"


@dataclass(frozen=True)
class Choice(Suite):
    """How often the right option is the likeliest one; nothing is trained.

    The layouts of RACE, ARC and COPA are read as they are, as `tune --task choice` reads them.
    `accuracy` compares the options' log-probabilities; `per_character` divides each by the option's
    length, since longer ones are less likely (in lm-eval-harness: acc and acc_norm).

    Attributes:
        files: the questions: a file, a folder or a pattern.
        ask: the text before an option, with `{question}` and perhaps `{context}` in it; a space is
            put between it and the option.
        limit: number of questions of each file, evenly spaced; 0 for all.

    Reference: Brown et al. 2020, section 2.4.
    """

    heading: ClassVar[str] = "multiple choice: how often the right option is the likeliest"

    files: FilePath
    ask: str = "{context} {question}"
    limit: CountOrZero = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if QUESTION not in self.ask:
            raise ValueError(f"ask: expected {QUESTION} in it")

    def questions(self) -> list[Question]:
        """Return the questions by file.

        Raises:
            UserError: there is no such file, or a row is not a question with options and an answer.
        """
        folder = Path(self.files).expanduser()
        files = (
            [folder] if race.is_folder(folder) else files_of(self.files, "probe.files", IN_FOLDERS)
        )
        questions: list[Question] = []
        for file in files:
            table = read_table(file)
            columns = chosen_columns(table, choice.COLUMNS, {})
            of_file = []
            for line, row in rows_of(table, [columns.text]):
                example = choice.choice_example(row, columns, f"{file}:{line}")
                if example is None:
                    raise UserError(f"{file}:{line}: no question in {columns.text}")
                if not example.label:
                    raise UserError(f"{file}:{line}: no answer in {columns.label}")
                question = choice.question_of(example)
                text = self.ask.replace(CONTEXT, question.context).replace(QUESTION, question.text)
                right = question.options[int(example.label)]
                subset = file.name.partition(".")[0] if len(files) > 1 else ALL
                name = f"{file.name}:{line}"
                of_file.append(
                    Question(
                        name, subset, text.strip(), right, tuple(question.options), example.label
                    )
                )
            questions += evenly(of_file, self.limit)
        if not questions:
            raise UserError(f"probe.files: {self.files}: no questions in it")
        return questions

    def method(self, prompted: PromptedModel) -> str:
        """Return how the model scores options.

        Raises:
            UserError: it cannot.
        """
        return method_of(prompted)

    def answers(self, prompted: PromptedModel, questions: Sequence[Question]) -> Iterator[Answer]:
        """Yield the likeliest option of each question."""
        options = [[Passage(f" {o}", before=q.text) for o in q.options] for q in questions]
        for question, scores in zip(questions, score_groups(prompted, options), strict=True):
            right = int(question.given)
            nats = tuple(score.nats for score in scores)
            chosen, correct = best(nats, right)
            shares = [n / len(option) for n, option in zip(nats, question.options, strict=True)]
            unknown = sum(score.unknown for score in scores)
            normalised = best(shares, right)[1]
            is_cut = any(score.is_cut for score in scores)
            yield Answer(
                question.options[chosen], correct, nats, unknown, (normalised,), is_cut=is_cut
            )

    def further(self, values: Array) -> Mapping[str, float]:
        """Return the accuracy of log-probabilities per character."""
        return {"per_character": float(values[:, 0].mean())}
