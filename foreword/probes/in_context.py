"""Whether a model learns a task from examples in its prompt: `sea -> mer, dog -> ___`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from foreword.errors import UserError
from foreword.evaluation.passages import Passage, PassageScore, method_of, score_passages
from foreword.probes import _marks
from foreword.probes._contract import FilePath, Row
from foreword.probes._demonstrations import (
    Demonstration,
    labelled_texts,
    scrambled_words,
    sums,
    translations,
)
from foreword.probes._suite import ALL, Answer, Question, Suite, best
from foreword.runs.trained_model import TrainedModel
from foreword.settings.ranges import Count, CountOrZero, Seed
from foreword.types import Array

TEXT, ANSWER = "{text}", "{answer}"
TEMPLATES = {
    "classify": "Text: {text}\nLabel: {answer}\n\n",
    "translate": "{text} -> {answer}\n",
    "unscramble": "{text} -> {answer}\n",
    "add": "{text} = {answer}\n",
}
FREE = ("N/A", "", "[MASK]")  # texts without content


class Context(NamedTuple):
    """A question and the examples before it in a prompt.

    Attributes:
        examples: the text of the examples.
        query: the question.
        draw: number of the draw of examples.
        shots: number of the examples.
    """

    examples: str
    query: Demonstration
    draw: int
    shots: int


@dataclass(frozen=True)
class InContext(Suite):
    """How often the right answer is the likeliest, after zero, one and more examples in the prompt.

    Nothing is trained. `calibrated` divides the probability of each answer by what it has in the
    same prompt where the question is without content (the mean over "N/A", "[MASK]" and nothing),
    since examples alone make some answers likely. `exact` counts answers each of whose tokens is
    the likeliest of all, as if generated. `lowest` and `highest` are the accuracies of single draws
    of examples, each with its own order: what luck makes of it. Under `all`, each number of
    examples counts alike.

    Attributes:
        task: `classify` the texts of a labelled table (`files`), `translate` words, `unscramble`
            letters, or `add` two numbers. All but the first have data of their own; they offer the
            right answer and three others.
        files: examples with columns `text` and `label`, for `classify` and `translate`.
        labels: words that stand for the labels, in the labels' alphabetical order; default: the
            labels themselves.
        shots: numbers of examples in the prompt.
        draws: number of random draws of examples and their order.
        limit: number of questions, the same ones after all examples.
        template: how an example is written, with `{text}` and `{answer}`; default: one of each
            task.
        calibrate: whether to measure `calibrated`, which takes up to four times as long.
        seed: seed of the draws of questions and examples.

    Reference: Brown et al. 2020; Zhao et al. 2021 (calibration, luck of the examples).
    """

    heading: ClassVar[str] = "in-context learning: how often the right answer is the likeliest"
    subset: ClassVar[str] = "examples"

    task: Literal["classify", "translate", "unscramble", "add"] = "unscramble"
    files: FilePath = ""
    labels: tuple[str, ...] = ()
    shots: tuple[CountOrZero, ...] = (0, 1, 4, 8)
    draws: Count = 3
    limit: Count = 50
    template: str = ""
    calibrate: bool = True
    seed: Seed = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.shots or len(set(self.shots)) < len(self.shots):
            raise ValueError(f"shots: expected different numbers, got {list(self.shots)}")
        if len(set(self.labels)) < len(self.labels):
            raise ValueError(f"labels: expected different words, got {list(self.labels)}")
        if self.labels and self.task != "classify":
            raise ValueError("labels: are for task 'classify'")
        if self.task == "classify" and not self.files:
            raise ValueError("files: task 'classify' needs a table with text and label")
        if self.task in ("unscramble", "add") and self.files:
            raise ValueError(f"files: task '{self.task}' makes its own examples")
        if self.template and (self.template.count(TEXT), self.template.count(ANSWER)) != (1, 1):
            raise ValueError(f"template: expected one {TEXT} and one {ANSWER}")
        if self.template and self.template.index(ANSWER) < self.template.index(TEXT):
            raise ValueError(f"template: expected {TEXT} before {ANSWER}")

    def questions(self) -> list[Question]:
        """Return the questions after each number of examples and each draw of them.

        Raises:
            UserError: the examples cannot be read, or there are too few.
        """
        queries, rest = self._questions_and_examples()
        questions = []
        for shots in sorted(self.shots):
            for draw in range(self.draws if shots else 1):  # no examples, no draws of them
                # The first examples of a longer prompt are those of a shorter one.
                order = np.random.default_rng((self.seed, draw)).permutation(len(rest))
                prompt = "".join(self._written(rest[n]) for n in order[:shots])
                questions += [
                    Question(
                        name=f"{shots} examples, draw {draw + 1}, question {number}",
                        subset=str(shots),
                        text=prompt + self._before(query.text),
                        answer=query.answer,
                        options=(query.answer, *query.others),
                        details=Context(prompt, query, draw, shots),
                        unit=str(number),
                    )
                    for number, query in enumerate(queries, 1)
                ]
        return questions

    def method(self, prompted: TrainedModel) -> str:
        """Return how the model scores answers.

        Raises:
            UserError: it cannot.
        """
        return method_of(prompted, ranks=True)

    def answers(self, prompted: TrainedModel, questions: Sequence[Question]) -> Iterator[Answer]:
        """Yield the likeliest answer of each question, calibrated too, and whether it is exact."""
        contexts: list[Context] = [question.details for question in questions]
        prompts = [
            self._passages(context.examples, context.query.text, question.options)
            for question, context in zip(questions, contexts, strict=True)
        ]
        free = [
            [self._passages(context.examples, text, question.options) for text in FREE]
            for question, context in zip(questions, contexts, strict=True)
            if self.calibrate
        ]
        scores = _scores(prompted, [*prompts, *(row for rows in free for row in rows)])
        exact = score_passages(prompted, [row[0] for row in prompts], ranks=True)
        for number, (question, score) in enumerate(zip(questions, exact, strict=True)):
            asked = [scores[passage] for passage in prompts[number]]
            nats = np.array([option.nats for option in asked])
            chosen, correct = best(list(nats), right=0)
            calibrated = float("nan")
            if self.calibrate:
                rows = [[scores[passage].nats for passage in row] for row in free[number]]
                prior = np.logaddexp.reduce(np.array(rows), axis=0)
                calibrated = best(list(nats - prior), right=0)[1]
            shown = contexts[number]
            # Without examples there is one draw, which is part of each.
            by_draw = (
                correct if draw == shown.draw or not shown.shots else float("nan")
                for draw in range(self.draws)
            )
            more = (calibrated, float(score.is_likeliest), *by_draw)
            yield Answer(
                question.options[chosen],
                correct,
                tuple(nats.tolist()),
                score.unknown,
                more,
                is_cut=any(option.is_cut for option in asked),
            )

    def extra_scores(self, values: Array) -> Mapping[str, float]:
        """Return the calibrated and the exact accuracy, and those of the worst and best draws."""
        calibrated, exact, *draws = (float(column.mean()) for column in values.T)
        return {
            "calibrated": calibrated,
            "exact": exact,
            "lowest": min(draws),
            "highest": max(draws),
        }

    # -- the prompts -------------------------------------------------------------------------------

    def _questions_and_examples(self) -> tuple[list[Demonstration], list[Demonstration]]:
        """Return the questions, and what the examples are drawn from."""
        rng = np.random.default_rng(self.seed)
        longest = max(self.shots)
        if self.task == "classify":
            pool = labelled_texts(self.files)
            pool = [self._with_label_words(pool[n]) for n in rng.permutation(len(pool))]
        elif self.task == "translate":
            pool = translations(self.files, rng)
        elif self.task == "unscramble":
            pool = scrambled_words(rng)
        else:
            pool = sums(rng, self.limit + 4 * longest)
        limit = min(self.limit, len(pool) - longest)
        if limit < 1:
            raise UserError(
                f"probe.shots: {longest} examples and a question: there are {len(pool)} in all"
            )
        return pool[:limit], pool[limit:]

    def _with_label_words(self, example: Demonstration) -> Demonstration:
        """Return an example with the words that stand for its labels."""
        if not self.labels:
            return example
        labels = sorted({example.answer, *example.others})
        if len(labels) != len(self.labels):
            raise UserError(
                f"probe.labels: {len(self.labels)} words, for the labels {', '.join(labels)}"
            )
        words = dict(zip(labels, self.labels, strict=True))
        others = tuple(words[other] for other in example.others)
        return replace(example, answer=words[example.answer], others=others)

    def _written(self, example: Demonstration) -> str:
        written = self.template or TEMPLATES[self.task]
        written = written if written[-1:].isspace() else f"{written}\n"
        return written.replace(TEXT, example.text).replace(ANSWER, example.answer)

    def _before(self, text: str) -> str:
        """Return a question up to where its answer begins."""
        before = (self.template or TEMPLATES[self.task]).partition(ANSWER)[0]
        return before.replace(TEXT, text)

    def _passages(self, examples: str, text: str, options: Sequence[str]) -> list[Passage]:
        """Return each answer after a prompt; the space before an answer is part of it."""
        before = examples + self._before(text)
        space = before[len(before.rstrip()) :]
        return [Passage(space + option, before.rstrip()) for option in options]

    def _plot(self, figure: Any, rows: Sequence[Row]) -> None:
        """Plot accuracy against the number of examples, dashed if calibrated; bars: the draws."""
        names = list(dict.fromkeys(str(row["run"]) for row in rows))
        figure.set_size_inches(7.6, 4.6)
        axes = figure.subplots()
        for n, run in enumerate(names[: _marks.MAX_RUNS]):
            of_run = [row for row in rows if row["run"] == run and row[self.subset] != ALL]
            at = np.arange(len(of_run)) + 0.04 * (n - (len(names) - 1) / 2)
            style = _marks.run_style(n)
            figures: dict[str, Array] = {
                key: np.array([row[key] for row in of_run], dtype=float)
                for key in (
                    self.measured, "lowest", "highest",
                    "calibrated", "calibrated_low", "calibrated_high",
                )
            }  # fmt: skip
            accuracy = figures[self.measured]
            spread = [accuracy - figures["lowest"], figures["highest"] - accuracy]
            axes.errorbar(
                at, accuracy, yerr=np.clip(spread, 0, None), label=run, capsize=3, **style
            )
            if self.calibrate:
                axes.plot(at, figures["calibrated"], linestyle="--", **style)
                low, high = figures["calibrated_low"], figures["calibrated_high"]
                axes.fill_between(at, low, high, color=style["color"], alpha=0.12, linewidth=0)
        chance = [row["chance"] for row in rows if row[self.subset] != ALL][: len(self.shots)]
        axes.plot(range(len(chance)), chance, color="0.3", linewidth=1, linestyle=":")
        axes.set_xticks(range(len(chance)), [str(shots) for shots in sorted(self.shots)])
        axes.set_ylim(0, 1)
        axes.set_xlabel(
            "examples in the prompt; bars: worst and best draw; dotted: chance"
            + ("\ndashed: calibrated, with its 95 % interval" if self.calibrate else "")
        )
        axes.set_ylabel("accuracy")
        heading = f"In-context learning, task {self.task}: is the right answer the likeliest?"
        axes.set_title(_marks.title(heading, len(names)))
        figure.legend(loc="outside lower center", ncols=2, frameon=False)


def _scores(
    prompted: TrainedModel, rows: Sequence[Sequence[Passage]]
) -> Mapping[Passage, PassageScore]:
    """Return the score of each passage, of equal ones once."""
    passages = list(dict.fromkeys(passage for row in rows for passage in row))
    return dict(zip(passages, score_passages(prompted, passages), strict=True))
