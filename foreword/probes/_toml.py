"""Suites in TOML: questions with options, of which a model should find the right one likeliest.

    description = "Whether the right plural is the likeliest."
    ask = "One {singular}, two"

    [columns]
    options = ["plural", "wrong"]
    subset = "rule"

A file `NAME.toml` beside the probes, or in a plug-in, is the suite NAME.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, make_dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from foreword.errors import UserError
from foreword.evaluation.passages import Passage, PassageScore, method_of, score_passages
from foreword.probes import _layouts
from foreword.probes._contract import FilePath
from foreword.probes._files import evenly
from foreword.probes._scoring import score_groups, shared_words
from foreword.probes._suite import Answer, Question, Suite, best
from foreword.runs.trained_model import TrainedModel
from foreword.settings import config, kinds
from foreword.settings.ranges import CountOrZero, Share
from foreword.tables.choice import choice_example
from foreword.tables.columns import Columns, text_of
from foreword.types import Array

COLUMN = re.compile(r"{([^{}]+)}")  # in `ask`


@dataclass(frozen=True)
class SuiteColumns:
    """The columns of a suite's tables.

    Attributes:
        options: the columns of the options, the right one first; or one column with a list of them.
        answer: the column of the right option, by its text, number from 0 or letter, if it is not
            the first.
        subset: the column of the subset; default: the file's name.
        group: the column of a group of subsets, which has a row of its own.
        unit: the column of what is drawn as one, such as a target term; default: each question.
        unrelated: the column of a text without sense: how often the others beat it is
            `language_model`, combined with the score to `icat` (Nadeem et al. 2021).
    """

    options: tuple[str, ...]
    answer: str = ""
    subset: str = ""
    group: str = ""
    unit: str = ""
    unrelated: str = ""


@dataclass(frozen=True)
class SuiteFile:
    """What a suite's TOML file says.

    Attributes:
        columns: the columns of its tables.
        description: what it measures, as `foreword show` tells it.
        heading: the title of table and plot; default: the first line of the description.
        ask: the text before an option, with columns in braces; a space is put between. It becomes
            a setting of the suite.
        layout: how the files are read: tables, or a layout that is published.
        score: what is compared: log-probabilities of the options, these per token, or those of the
            words that two sentences share (all words, of a causal model); or whether each token of
            the one option is the likeliest of all, beside its perplexity.
        per_character: whether the accuracy of log-probabilities per character is given too.
        measured: what the score is called.
        subset: what a subset is called.
        unit: what is drawn as one is called.
        chance: what guessing reaches; default: the mean of 1 / options.
        caution: what the score does not say.
        limit: the default number of questions of each subset, evenly spaced; 0 for all.
    """

    columns: SuiteColumns
    description: str = ""
    heading: str = ""
    ask: str = ""
    layout: Literal["table", "choice", "lambada", "stereoset", "winobias"] = "table"
    score: Literal["sum", "per_token", "shared_words", "likeliest"] = "sum"
    per_character: bool = False
    measured: str = "accuracy"
    subset: str = "subset"
    unit: str = "question"
    chance: Share | None = None
    caution: str = ""
    limit: CountOrZero = 0

    def __post_init__(self) -> None:
        if not self.columns.options:
            raise ValueError("columns.options: expected the columns of the options")
        if self.predicts and len(self.columns.options) > 1:
            raise ValueError("columns.options: expected one column with the score 'likeliest'")

    @property
    def predicts(self) -> bool:
        """Whether the answer is compared with all words, not with other options."""
        return self.score == "likeliest"


@dataclass(frozen=True)
class TomlSuite(Suite):
    """A suite that a TOML file describes.

    Attributes:
        files: the questions: a file, a folder or a pattern.
        ask: the text before an option, with columns in braces.
        limit: number of questions of each subset, evenly spaced; 0 for all.
    """

    file: ClassVar[SuiteFile]

    files: FilePath
    limit: CountOrZero = 0

    def __reduce__(self) -> tuple[Any, ...]:
        table = config.kind_table(self)
        return config.build_kind, (kinds.Part("probes"), table, "probe")

    def questions(self) -> list[Question]:
        """Return the questions by subset, the options in the order of their columns.

        Raises:
            UserError: there is no such file, or a row lacks a column or an option.
        """
        columns, ask = self.file.columns, getattr(self, "ask", "")
        required = [*columns.options, *COLUMN.findall(ask), *filter(None, [columns.answer])]
        subsets: dict[str, list[Question]] = {}
        for item in getattr(_layouts, self.file.layout)(self.files, required):
            question = self._question(item, ask)
            subsets.setdefault(question.subset, []).append(question)
        if not subsets:
            raise UserError(f"probe.files: {self.files}: no questions in it")
        return [q for of_one in subsets.values() for q in evenly(of_one, self.limit)]

    def _question(self, item: _layouts.Item, ask: str) -> Question:
        columns, row, where = self.file.columns, item.row, item.where

        def text(column: str) -> str:
            return text_of(row.get(column), where).strip() if column else ""

        if len(columns.options) == 1 and not self.file.predicts:
            listed = row.get(columns.options[0])
            if not isinstance(listed, list):
                raise UserError(f"{where}: '{columns.options[0]}' is not a list of options")
            options = [text_of(option, where).strip() for option in listed]
        else:
            options = [text(column) for column in columns.options]
        unrelated = [text(columns.unrelated)] * bool(columns.unrelated)
        if not all([*options, *unrelated]):
            raise UserError(f"{where}: no sentence in {' or in '.join(columns.options)}")
        if len(options) < 2 - self.file.predicts:
            raise UserError(f"{where}: expected at least two options, got {len(options)}")
        before = COLUMN.sub(lambda match: text(match[1]), ask).strip()
        right = 0
        if columns.answer:
            right = _number_of(row.get(columns.answer), options, where)
        answer = options[right]
        is_before = columns.answer or self.file.predicts
        return Question(
            name=item.name,
            subset=text(columns.subset) or item.subset,
            text=before if is_before else f"{before} {answer}".strip(),
            answer=answer,
            options=() if self.file.predicts else (*options, *unrelated),
            details=(before, right),
            unit=text(columns.unit),
            group=text(columns.group),
        )

    def chance(self, questions: Sequence[Question]) -> float | None:
        """Return what guessing would reach."""
        return super().chance(questions) if self.file.chance is None else self.file.chance

    def method(self, prompted: TrainedModel) -> str:
        """Return how the model scores options.

        Raises:
            UserError: it cannot.
        """
        how = method_of(prompted, ranks=self.file.predicts)
        if self.file.predicts:
            how += ", of the answer"
        elif self.file.score == "per_token":
            how += ", per token"
        elif self.file.score == "shared_words" and not prompted.continues:
            how += ", of the words that a pair has in common"
        return f"{how}; means over {self.unit}s" if self.file.columns.unit else how

    def answers(self, prompted: TrainedModel, questions: Sequence[Question]) -> Iterator[Answer]:
        """Yield the likeliest option of each question; none if the right one shares its score."""
        if self.file.predicts:
            yield from _predicted(prompted, questions)
            return
        scores = score_groups(prompted, [p for q in questions for p in self._passages(prompted, q)])
        for question in questions:
            right, all_options = question.details[1], question.options
            parts = [next(scores) for _ in all_options]
            figures = [self._score(part) for part in parts]
            count = len(all_options) - bool(self.file.columns.unrelated)
            chosen, correct = best(figures[:count], right)
            more = []
            if self.file.per_character:
                lengths = map(len, all_options)
                shares = [figure / n for figure, n in zip(figures, lengths, strict=True)]
                more.append(best(shares[:count], right)[1])
            if self.file.columns.unrelated:
                beats = [best((figure, figures[-1]), right=0)[1] for figure in figures[:count]]
                more += [correct, sum(beats) / count]
            every = [score for part in parts for score in part]
            yield Answer(
                all_options[chosen] if correct in (0, 1) else "",
                correct,
                tuple(figures),
                sum(score.unknown for score in every),
                tuple(more),
                is_cut=any(score.is_cut for score in every),
            )

    def _passages(self, prompted: TrainedModel, question: Question) -> list[list[Passage]]:
        """Return the passages whose probabilities make the score of each option."""
        before = question.details[0]
        if self.file.score == "shared_words" and not prompted.continues:
            one, other = (f"{before} {option}".strip() for option in question.options[:2])
            return shared_words(one, other)
        return [[Passage(f" {o}" if before else o, before)] for o in question.options]

    def _score(self, passages: Sequence[PassageScore]) -> float:
        nats = sum(score.nats for score in passages)
        if self.file.score == "per_token":
            return nats / sum(score.tokens for score in passages)
        return nats

    def extra_scores(self, values: Array) -> Mapping[str, float]:
        """Return the accuracy per character, and the language-model score with ICAT."""
        means = [float(column.mean()) for column in values.T]
        if self.file.predicts:
            return {"perplexity": math.exp(-means[0]) if means[0] > -700 else math.nan}
        extra = {"per_character": means[0]} if self.file.per_character else {}
        if self.file.columns.unrelated:
            preferred, reads = means[-2:]
            icat = reads * min(preferred, 1 - preferred) / 0.5
            extra |= {"language_model": reads, "icat": icat}
        return extra


def _predicted(prompted: TrainedModel, questions: Sequence[Question]) -> Iterator[Answer]:
    """Yield whether each token of each answer is the likeliest."""
    passages = [Passage(f" {q.answer}", q.details[0]) for q in questions]
    scores = score_passages(prompted, passages, ranks=True)
    for question, score in zip(questions, scores, strict=True):
        is_right, nats = score.is_likeliest, (score.nats,)
        given = question.answer if is_right else ""
        yield Answer(given, float(is_right), nats, score.unknown, nats, is_cut=score.is_cut)


def kind_of(file: Path, module: str) -> type[TomlSuite]:
    """Return the class of the suite in a TOML file, whose settings are those of the suite.

    Args:
        file: the file.
        module: the module that it stands for.

    Raises:
        UserError: it cannot be read, or has a mistake; the key is named.
    """
    changed = file.stat().st_mtime_ns if file.is_file() else 0
    return _kind_of(file, module, changed)


@functools.lru_cache(64)
def _kind_of(file: Path, module: str, changed: int) -> type[TomlSuite]:
    suite = config.load(SuiteFile, file, what="a suite of questions")
    ask = [("ask", str, suite.ask)] if suite.ask else []
    name = "".join(map(str.capitalize, file.stem.split("_")))
    first_line = suite.description.strip().partition("\n")[0]
    namespace = {
        "__doc__": suite.description,
        "file": suite,
        "heading": suite.heading or first_line,
        **{key: getattr(suite, key) for key in ("measured", "subset", "unit", "caution")},
    }
    settings: list[Any] = [("limit", CountOrZero, suite.limit), *ask]
    made = make_dataclass(name, settings, bases=(TomlSuite,), namespace=namespace, frozen=True)
    made.__module__ = module  # from Python 3.12 on it is set to that of who calls
    return made


def _number_of(answer: Any, options: Sequence[str], where: str) -> int:
    """Return the number of the right option, given by its text, number or letter."""
    row = {"text": "?", "label": answer, "options": options}
    example = choice_example(row, Columns(pair="options"), where)
    if example is None or not example.label:
        raise UserError(f"{where}: no answer")
    return int(example.label)
