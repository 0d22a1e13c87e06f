"""Suites: probes that ask many questions, each answered right or wrong by a model."""

from __future__ import annotations

import math
import textwrap
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.stats import binomtest

from foreword.errors import UserError
from foreword.evaluation.passages import max_input_tokens
from foreword.evaluation.statistics import (
    LEVEL,
    NO_INTERVAL,
    Ends,
    Signal,
    bootstrap,
    bootstrap_each,
    signal,
    signal_notes,
    spreads_on_same_items,
)
from foreword.formatting import interval
from foreword.probes._contract import Finding, ProbedModel, Row
from foreword.probes._marks import MAX_RUNS, run_style, title
from foreword.runs.trained_model import TrainedModel
from foreword.settings import kinds
from foreword.settings.ranges import Ranged
from foreword.types import Array

ALL = "all"  # the subset of all questions
DRAWS = 1_000  # of a bootstrap
TITLE_WIDTH = 44  # characters, over axes beside the names of subsets
WITHOUT = "no interval"
CLOSENESS = 1e-6  # relative difference of two sums that are equal in float32


@dataclass(frozen=True)
class Question:
    """A question to a model.

    Attributes:
        name: what names it in messages and results: a file and its line.
        subset: the part of the suite that it belongs to.
        text: what is asked, as people read it.
        answer: the right answer.
        options: the answers to choose from; empty if the model finds its own.
        details: what only some suites need.
        unit: what it asks, if it is asked in several ways, such as after other examples or of one
            term: these are drawn, averaged and compared as one, since they are not independent.
        group: the subsets whose figure is also given as one, such as those of a phenomenon.
    """

    name: str
    subset: str
    text: str
    answer: str
    options: tuple[str, ...] = ()
    details: Any = None
    unit: str = ""
    group: str = ""


@dataclass(frozen=True)
class Answer:
    """A model's answer to a question.

    Attributes:
        given: the answer; "" if it has none of its own.
        correct: 1 if right, 0 if not; a tie counts in part.
        scores: score of each option, higher for a likelier one; or what else was measured.
        unknown: unknown tokens among those scored.
        extra: what `extra_scores` takes, as many numbers for each question; nan where not known.
        value: what `statistic` takes if it is not `correct`.
        is_cut: whether the model had no room for all of the text, and read a part of it.
    """

    given: str
    correct: float
    scores: tuple[float, ...] = ()
    unknown: int = 0
    extra: tuple[float, ...] = ()
    value: tuple[float, ...] | None = None
    is_cut: bool = False


@dataclass(frozen=True)
class Suite(Ranged, ABC):
    """A probe that asks a model questions and saves each answer.

    Attributes:
        measured: what the answers are summed up to.
        heading: the title of its table and plot.
        subset: what a subset is called in the table.
        unit: what is drawn and compared as one: a question, or those that ask the same.
        caution: what the figure does not say.
    """

    reads_text: ClassVar[bool] = False
    measured: ClassVar[str] = "accuracy"
    heading: ClassVar[str] = ""
    subset: ClassVar[str] = "subset"
    unit: ClassVar[str] = "question"
    caution: ClassVar[str] = ""

    @abstractmethod
    def questions(self) -> Sequence[Question]:
        """Return the questions, those of a subset one after another.

        Raises:
            UserError: they cannot be read, or there are none.
        """

    @abstractmethod
    def answers(self, prompted: TrainedModel, questions: Sequence[Question]) -> Iterator[Answer]:
        """Yield the model's answer to each question.

        Raises:
            UserError: the model cannot do the suite.
        """

    @abstractmethod
    def method(self, prompted: TrainedModel) -> str:
        """Return how the model is scored.

        Raises:
            UserError: the model cannot do the suite.
        """

    def chance(self, questions: Sequence[Question]) -> float | None:
        """Return what guessing would reach; None if it is about 0 or not known."""
        shares = [1 / len(question.options) for question in questions if question.options]
        return float(np.mean(shares)) if len(shares) == len(questions) else None

    def statistic(self, values: Array) -> float:
        """Return the figure of some answers, from their `correct` or `value`; (answers, ...)."""
        return float(values.mean())

    def remarks(self, prompted: TrainedModel, questions: Sequence[Question]) -> list[str]:
        """Return more notes on a model's figures."""
        del prompted, questions
        return []

    def extra_scores(self, values: Array) -> Mapping[str, float]:
        """Return other figures of some answers, the same for any; nan for one that is not known.

        Args:
            values: `extra` of each question that is drawn as one, (questions, ...).
        """
        del values
        return {}

    def measure(self, models: Sequence[ProbedModel]) -> Finding:
        """Ask each model all questions.

        Raises:
            UserError: the questions cannot be read, or a model cannot do the suite.
        """
        questions = self.questions()
        _require_own_total(questions, self.subset)
        methods = [self.method(model.trained) for model in models]
        rows: list[Row] = []
        predictions: list[Row] = []
        notes: list[str] = []
        answers_of = {}
        for model, method in zip(models, methods, strict=True):
            answers = []
            for answer in self.answers(model.trained, questions):
                answers.append(answer)
                model.progress(len(answers), len(questions))
            answers_of[model.label] = answers
            rows += self._rows(model.label, questions, answers)
            predictions += _predictions(model.label, questions, answers)
            unknown = sum(answer.unknown > 0 for answer in answers)
            with_unknown = f"; with unknown tokens: {unknown:,}" if unknown else ""
            ties = sum(answer.value is None and answer.correct not in (0, 1) for answer in answers)
            with_ties = f"; ties, which count in part: {ties:,}" if ties else ""
            notes.append(f"{model.label}: {method}{with_unknown}{with_ties}")
            if cut := sum(answer.is_cut for answer in answers):
                notes.append(
                    f"{model.label}: {cut:,} of {len(questions):,} questions have more than "
                    f"{max_input_tokens(model.trained):,} tokens and are cut"
                )
            notes += [f"{model.label}: {note}" for note in self.remarks(model.trained, questions)]
        notes += [self.caution] if self.caution else []
        notes.append(f"intervals: {LEVEL:.0%}, by bootstrap over the {self.unit}s")
        signals = self._signals(answers_of, questions)
        notes += signal_notes(signals, "models", f"over the {self.unit}s, which all answer")
        comparisons = list(_comparisons(answers_of, questions, self))
        notes += comparisons
        if any(map(self._lacks_interval, rows)) or any(WITHOUT in line for line in comparisons):
            notes.append(NO_INTERVAL)
        return Finding(
            title=self.heading,
            rows=rows,
            details=rows,
            notes=notes,
            plot=lambda figure: self._plot(figure, rows),
            measure=self.measured,
            scores={row["run"]: row[self.measured] for row in rows if row[self.subset] == ALL},
            predictions=predictions,
        )

    def _rows(
        self, run: str, questions: Sequence[Question], answers: Sequence[Answer]
    ) -> Iterator[Row]:
        """Yield the figures of each subset, of each group, then those of all questions."""
        for name, where in _groups(questions).items():
            asked, given = [questions[int(n)] for n in where], [answers[int(n)] for n in where]
            figures, intervals = self._figures(_values(asked, given), _more(asked, given))
            (low, high), *others = intervals
            row = {
                "run": run,
                self.subset: name,
                self.measured: figures.pop(self.measured),
                "low": low,
                "high": high,
            }
            for (key, figure), (low, high) in zip(figures.items(), others, strict=True):
                known = None if math.isnan(figure) else figure
                row |= {key: known, f"{key}_low": low, f"{key}_high": high}
            yield row | {"questions": len(where), "chance": self.chance(asked)}

    def _signals(
        self, answers_of: Mapping[str, Sequence[Answer]], questions: Sequence[Question]
    ) -> dict[str, Signal | None]:
        """Return the signal to noise of the mean of each subset, and of all questions."""
        signals: dict[str, Signal | None] = {}
        for name, where in _groups(questions).items():
            asked = [questions[int(n)] for n in where]
            models = [_values(asked, [of[int(n)] for n in where]) for of in answers_of.values()]
            if models[0].ndim == 1:
                signals[name] = signal(spreads_on_same_items(np.stack(models)))
        return signals

    def _figures(self, values: Array, more: Array) -> tuple[dict[str, float], list[Ends]]:
        """Return each figure by name, what is `measured` first, and its interval."""

        def of(questions: Any) -> dict[str, float]:
            measured = self.statistic(values[questions])
            return {self.measured: measured, **self.extra_scores(more[questions])}

        intervals = bootstrap_each(lambda indices: [*of(indices).values()], len(values), DRAWS)
        return of(slice(None)), intervals

    def _lacks_interval(self, row: Row) -> bool:
        """Return whether a known figure of a row has no interval."""
        ends = {"low": self.measured}
        ends |= {key: key.removesuffix("_low") for key in row if key.endswith("_low")}
        known = {low for low, of in ends.items() if row[of] is not None and not math.isnan(row[of])}
        return any(row[low] is None for low in known)

    def _plot(self, figure: Any, rows: Sequence[Row]) -> None:
        """Plot the figure of each subset as bars with their intervals, the runs side by side."""
        subsets = list(dict.fromkeys(str(row[self.subset]) for row in rows))
        names = list(dict.fromkeys(str(row["run"]) for row in rows))
        runs = names[:MAX_RUNS]
        height = 0.8 / len(runs)
        figure.set_size_inches(7.6, max(3.0, 1.6 + 0.18 * len(subsets) * (len(runs) + 0.5)))
        axes = figure.subplots()
        for n, run in enumerate(runs):
            of_run = [row for row in rows if row["run"] == run]
            value, low, high = (
                np.array([row[key] for row in of_run], dtype=float)
                for key in (self.measured, "low", "high")
            )
            axes.barh(
                np.arange(len(subsets)) + (n - (len(runs) - 1) / 2) * height,
                value,
                height=height,
                xerr=np.nan_to_num(np.clip([value - low, high - value], 0, None)),
                error_kw={"elinewidth": 0.8, "ecolor": "0.3"},
                color=run_style(n)["color"],
                label=f"{run} ({of_run[-1][self.measured]:.3f})",
            )
        chances = [row["chance"] for row in rows if row["run"] == runs[0]]
        label = self.measured.replace("_", " ")
        if all(chance is not None for chance in chances):
            for n, chance in enumerate(chances):
                axes.plot([chance] * 2, [n - 0.45, n + 0.45], color="0.3", linewidth=1, ls=":")
            label += "; dotted: chance"
        axes.set_yticks(range(len(subsets)), subsets)
        axes.invert_yaxis()
        axes.set_xlim(min(0, axes.get_xlim()[0]), max(1, axes.get_xlim()[1]))
        axes.set_xlabel(label)
        heading = textwrap.fill(self.heading[:1].upper() + self.heading[1:], TITLE_WIDTH)
        axes.set_title(title(heading, len(names)))
        figure.legend(loc="outside lower center", ncols=2, frameon=False)


def best(scores: Sequence[float], right: int) -> tuple[int, float]:
    """Return the number of the greatest score, and how far it is right: ties share.

    Args:
        scores: score of each option.
        right: the number of the right one.
    """
    values = np.asarray(scores, dtype=float)
    # Equal as far as float32 tells: texts of the same tokens may be in different batches.
    is_best = np.isclose(values, values.max(), rtol=CLOSENESS, atol=CLOSENESS)
    return int(values.argmax()), float(is_best[right] / is_best.sum())


def _groups(questions: Sequence[Question]) -> dict[str, Array]:
    """Return the numbers of the questions of each subset, of each group, and of all."""
    names = [question.subset for question in questions]
    of_groups = [f"all of {q.group}" if q.group else "" for q in questions]
    subsets, several = (list(dict.fromkeys(each)) for each in (names, of_groups))
    groups = {name: np.flatnonzero(np.array(names) == name) for name in subsets}
    if len(several) > 1:
        groups |= {g: np.flatnonzero(np.array(of_groups) == g) for g in several if g}
    if len(subsets) != 1 or ALL not in subsets:
        groups[ALL] = np.arange(len(questions))
    return groups


def _require_own_total(questions: Sequence[Question], kind: str) -> None:
    """Check that no subset beside others has the name of the total."""
    named = next((question.name for question in questions if question.subset == ALL), None)
    if named is not None and any(question.subset != ALL for question in questions):
        raise UserError(f"{named}: the {kind} '{ALL}' has the name of the total; rename it")


def _predictions(
    run: str, questions: Sequence[Question], answers: Sequence[Answer]
) -> Iterator[Row]:
    for question, answer in zip(questions, answers, strict=True):
        yield {
            "run": run,
            "question": question.name,
            "subset": question.subset,
            "text": question.text,
            "options": list(question.options),
            "answer": question.answer,
            "given": answer.given,
            "correct": answer.correct,
            "scores": list(answer.scores),
        }


def _values(questions: Sequence[Question], answers: Sequence[Answer]) -> Array:
    """Return the values that the statistic takes, (questions, ...) float64."""
    values = [answer.correct if answer.value is None else answer.value for answer in answers]
    return _by_question(questions, np.array(values, dtype=float))


def _more(questions: Sequence[Question], answers: Sequence[Answer]) -> Array:
    """Return the values that `extra_scores` takes, (questions, ...) float64."""
    return _by_question(questions, np.array([answer.extra for answer in answers], dtype=float))


def _by_question(questions: Sequence[Question], values: Array) -> Array:
    """Return the values of each question that is drawn as one.

    Questions that ask the same have one value, the mean over subsets of the mean in each, so that a
    subset that asks more often counts no more. Values that are not known (nan) are left out of the
    mean in a subset.
    """
    if not any(question.unit for question in questions):
        return values
    asked: dict[str | int, dict[str, list[int]]] = {}
    for number, question in enumerate(questions):
        same = asked.setdefault(question.unit or number, {})
        same.setdefault(question.subset, []).append(number)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of means of nan alone
        means = (
            [np.nanmean(values[numbers], axis=0) for numbers in same.values()]
            for same in asked.values()
        )
        return np.array([np.mean(each, axis=0) for each in means])


def _comparisons(
    answers_of: Mapping[str, Sequence[Answer]], questions: Sequence[Question], suite: Suite
) -> Iterator[str]:
    """Yield how far the first model differs from each other one, on the same questions."""
    (first, answers), *others = answers_of.items()
    one = _values(questions, answers)
    for name, other_answers in others:
        other = _values(questions, other_answers)
        yield f"{first} against {name}: {paired(one, other, suite)}"


def paired(one: Array, other: Array, suite: Suite) -> str:
    """Return the difference of two models on the same questions, with its interval and test.

    The interval is the bootstrap's over questions; the test is the exact sign test of the questions
    that only one of them answers (McNemar's, where answers are right or wrong). The test counts an
    answer that is better by half, as beside a tie, like one that is better by one, so that it may
    disagree with the mean.
    """
    difference = suite.statistic(one) - suite.statistic(other)
    low, high = bootstrap(
        lambda indices: suite.statistic(one[indices]) - suite.statistic(other[indices]),
        len(one),
        DRAWS,
    )
    ends = interval(low, high, "+") or WITHOUT
    summary = f"{suite.measured.replace('_', ' ')} {difference:+.3f} ({ends})"
    if one.ndim > 1:
        return summary
    higher, lower = int((one > other).sum()), int((one < other).sum())
    p = float(binomtest(higher, higher + lower).pvalue) if higher + lower else 1.0
    asked = suite.unit if higher == 1 else f"{suite.unit}s"
    return f"{summary}; higher on {higher:,} {asked}, lower on {lower:,}, p = {p:.2g} (sign test)"


def names() -> list[str]:
    """Return the probes that are suites of questions."""
    return [name for name in kinds.names("probes") if issubclass(kinds.load("probes", name), Suite)]
