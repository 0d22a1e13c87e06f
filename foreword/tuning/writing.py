"""The base of tasks that are answered in text, by the output layer of pretraining."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from foreword.evaluation.prompting import PromptedModel
from foreword.evaluation.starts import Start
from foreword.tables.examples import Labelled
from foreword.tuning.input_template import InputTemplate
from foreword.tuning.tasks._contract import Task
from foreword.types import Loss


@dataclass(frozen=True)
class WritingTask(Task):
    """A task without a new head, whose model is saved as a run."""

    def head(self, d_model: int, labels: tuple[str, ...]) -> None:
        """Return None: the head is the output layer of pretraining."""

    def loss(self, outputs: Tensor, targets: Tensor, numbers: Tensor) -> Loss:
        """Return the cross-entropy of the answers' tokens, which the output layer computed.

        Args:
            outputs: nats, of all tokens or of each.
            targets: (tokens,).
            numbers: the numbers of the examples.
        """
        total = outputs.sum()
        return Loss(total, total.new_tensor(float(len(targets))))

    @abstractmethod
    def starts(
        self,
        examples: Sequence[Labelled],
        prompted: PromptedModel,
        template: InputTemplate,
        most: int,
    ) -> tuple[list[Start], int]:
        """Return what the answer to each example begins with, and how many examples were cut.

        Args:
            examples: the examples, without labels.
            prompted: the tuned model.
            template: the input template.
            most: the most tokens of an answer.
        """

    @abstractmethod
    def most_tokens(self, labels: tuple[str, ...], prompted: PromptedModel) -> int:
        """Return the most tokens of an answer to write, its end included."""

    def answer_of(self, text: str, labels: tuple[str, ...]) -> str:
        """Return the answer that a written text stands for."""
        del labels
        return text

    def chat_template(self, prompted: PromptedModel, template: InputTemplate) -> str:
        """Return the Jinja template of conversations for `transformers`; "" without any."""
        del prompted, template
        return ""
