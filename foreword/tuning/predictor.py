"""What a fine-tuned model needs to answer rows of a table, whatever its task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from foreword.errors import UserError
from foreword.tuning.examples import LabelledTexts
from foreword.tuning.task_mixture import with_prefix
from foreword.tuning.tasks._contract import Labelled

PREDICTION, PROBABILITY = "prediction", "probability"  # columns of answers


@dataclass(frozen=True)
class TunedOn:
    """The form of the examples that a model was tuned on.

    Attributes:
        text: the column of the text.
        pair: the column of the second text, "" for none.
        prefixes: the task prefix of each file, if they had one.
        is_pair: whether examples are pairs; None if it is not known.
    """

    text: str = "text"
    pair: str = ""
    prefixes: tuple[str, ...] = ()
    is_pair: bool | None = None

    def examples(
        self, texts: Sequence[str], pairs: Sequence[str] | None, prefix: str | None
    ) -> LabelledTexts:
        """Return texts or pairs as examples in the form of training.

        Args:
            texts: the texts.
            pairs: the second text of each, or None.
            prefix: the task prefix; None for the one of training.

        Raises:
            UserError: the numbers of texts and second texts differ, second texts are missing or
                too many, or there are several prefixes to choose from.
        """
        if pairs is not None and len(pairs) != len(texts):
            raise UserError(f"{len(texts)} texts, but {len(pairs)} second texts")
        self.require_form(is_pair=pairs is not None)
        return LabelledTexts.of(
            self.with_prefix(
                Labelled(text, "", None if pairs is None else pairs[n], f"text {n + 1}"), prefix
            )
            for n, text in enumerate(texts)
        )

    def require_form(self, *, is_pair: bool) -> None:
        """Check that there are second texts if and only if training had them.

        Raises:
            UserError: there are none, or there should be none.
        """
        if self.is_pair is not None and self.is_pair != is_pair:
            raise UserError(
                "this model was tuned on pairs; the second texts are missing (--pair, pairs=)"
                if self.is_pair
                else "this model was tuned on single texts; leave the second texts out"
            )

    def with_prefix(self, example: Labelled, prefix: str | None) -> Labelled:
        """Return an example with the task prefix given, or with that of training.

        Raises:
            UserError: there are several to choose from.
        """
        if prefix is None and len(set(self.prefixes)) > 1:
            names = ", ".join(repr(one) for one in self.prefixes)
            raise UserError(f"--prefix: this model was tuned with several; choose one of {names}")
        chosen = next(iter(self.prefixes), None) if prefix is None else prefix
        return example if chosen is None else with_prefix(example, chosen)


@dataclass(frozen=True)
class Answers:
    """The answers of a model to some examples.

    Attributes:
        rows: the columns of each example's answer.
        cut: how many examples were cut to the model's length.
    """

    rows: list[dict[str, Any]]
    cut: int


class Predictor(Protocol):
    """A fine-tuned model that answers examples."""

    @property
    def tuned_on(self) -> TunedOn:
        """The form of the examples that it was tuned on."""

    @property
    def max_tokens(self) -> int:
        """The most tokens that it reads of an example."""

    def answer_types(self, *, probabilities: bool) -> dict[str, Any]:
        """Return the Arrow type of each column of its answers.

        Args:
            probabilities: whether there is a column for the probability of each label.

        Raises:
            UserError: the task has no probabilities.
        """

    def answer(
        self, examples: LabelledTexts, *, probabilities: bool, done: Callable[[int], None]
    ) -> Answers:
        """Return the answer to each example.

        Args:
            examples: with their prefixes.
            probabilities: as in `answer_types`.
            done: called with the number of examples answered since the last call.
        """
