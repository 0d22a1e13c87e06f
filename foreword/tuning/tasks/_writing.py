"""Tasks that are answered in text by the output layer of pretraining, and the form of an answer.

model with a source    source [a film </s>]    target [fine </s>]
decoder                [a film [SEP] fine </s>]            scored: fine </s>
masked diffusion       [a film [SEP] [MASK] </s> [MASK] </s> ...]   masked and scored: the answer
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import numpy as np
from torch import Tensor

from foreword.errors import UserError
from foreword.evaluation.starts import Start
from foreword.objectives.diffusion import Diffusion
from foreword.runs.recipe import Recipe
from foreword.runs.trained_model import TrainedModel
from foreword.tables.examples import Labelled
from foreword.text.special import EOS, SEP
from foreword.tuning.input_template import InputTemplate
from foreword.tuning.tasks._contract import BOUND, Labels, Task
from foreword.types import Array, Loss

DECODER_TOKENS = (SEP, EOS)  # between a text and its answer, and after the answer
ABOUT_BOUND = (
    "perplexity of masked diffusion is a bound, estimated by two maskings of each answer: "
    "it is at most this, and not to be ranked with that of other models or of unigrams"
)


def is_bound(task: Task, trained: TrainedModel) -> bool:
    """Return whether the perplexity by which a task scores a model is an upper bound."""
    return trained.unmasks and BOUND in task.judge.names


@dataclass(frozen=True)
class AnswerForm:
    """The form in which a model reads texts and answers them.

    A model with a source has that of pretraining; its template's length is that of the source. A
    decoder reads text and answer in one row, of at most the template's length, which begins as the
    prompts that it continues. So does a model of masked diffusion, in which every answer has as
    many positions as the writer fills: after its end come further end tokens, so that the model
    learns how long answers are (Nie et al. 2025, section 2.3).
    """

    prompted: TrainedModel
    template: InputTemplate

    @classmethod
    def of(cls, prompted: TrainedModel, template: InputTemplate) -> AnswerForm:
        """Return the form of a model, which has to write text."""
        cls.require_writer(prompted, is_causal=template.is_causal)
        return cls(prompted, template)

    @staticmethod
    def require_writer(
        prompted: TrainedModel, *, is_causal: bool = True, is_compared: bool = False
    ) -> None:
        """Raise UserError unless a model writes text.

        Args:
            is_causal: its input template's.
            is_compared: whether the task compares likelihoods (`Needs.has_reference`).
        """
        if prompted.unmasks and is_compared:
            raise UserError(
                f"{prompted.name}: --task prefer compares likelihoods, and of a model of masked "
                "diffusion only bounds are known; use --task chat on the chosen answers"
            )
        if prompted.unmasks:
            return
        if not prompted.answers and not (prompted.continues and is_causal):
            raise UserError(
                f"{prompted.name}: this {prompted.description} was not trained to write text; "
                "--task text_to_text, chat and prefer work with models that answer a source "
                "(layouts encoder_decoder and prefix, such as t5_mini) or continue text (decoder "
                "and hybrid, such as gpt2_mini and gpt_bert_mini), and the first two with masked "
                "diffusion (diffusion_mini); --task classify and span work with any"
            )

    @property
    def tuned_recipe(self) -> Recipe:
        """The recipe of the tuned model: of masked diffusion, rows and end are those of tuning."""
        recipe = self.prompted.recipe
        if not isinstance(recipe.objective, Diffusion):
            return recipe
        packing = replace(cast(Any, recipe.packing), length=self.template.length)
        return replace(recipe, packing=packing, objective=replace(recipe.objective, end=EOS))

    @cached_property
    def end(self) -> Array:
        """The token after an answer, (0 or 1,) int64."""
        if self.prompted.answers:
            return self.prompted.end_token
        return np.asarray([self.prompted.vocab.id(EOS)])

    @property
    def fresh(self) -> tuple[int, ...]:
        """The special tokens that pretraining never used."""
        if self.prompted.answers:
            return ()
        used = {*self.prompted.bos.tolist(), *self.prompted.eos.tolist()}
        ids = map(self.prompted.vocab.id, DECODER_TOKENS)
        return tuple(sorted({*ids} - used))

    def source(self, ids: Array) -> Array:
        """Return a text with its special tokens."""
        if self.prompted.answers:
            return self.prompted.source_of(ids)
        separator = [self.prompted.vocab.id(SEP)]
        return np.concatenate([self.prompted.prompt_prefix, ids, separator]).astype(np.int64)

    def start(self, source: Array) -> Start:
        """Return what an answer begins with."""
        none = source[:0]
        return Start(source, none) if self.prompted.answers else Start(None, source)

    def source_room(self, answer: int) -> int:
        """Return the most tokens of a text, 0 or less if nothing fits.

        In a decoder a long answer leaves half of the row to the text.

        Args:
            answer: the number of tokens of the answer, its end included.
        """
        special = len(self.source(np.zeros(0, np.int64)))
        length, limit = self.template.length, self.prompted.limit
        if not self.prompted.answers:
            return max(length - answer, length // 2) - special

        def fits(source: int) -> bool:
            return limit is None or self.prompted.pair_length(source, answer) <= limit

        return next((n for n in range(length, 0, -1) if fits(n)), 0) - special

    def cut(self, source: Array, answer: int) -> Array:
        """Return a text with its special tokens, cut in a decoder as before the longest answer.

        Args:
            source: the text with its special tokens, cut for its own answer.
            answer: the number of tokens of the longest answer, its end included.
        """
        if self.prompted.answers:
            return source
        text = source[len(self.prompted.prompt_prefix) : -1]
        return self.source(text[: self.source_room(answer)])

    def answer_room(self, source: int) -> int | None:
        """Return the most tokens of an answer to train on; None for any number.

        Args:
            source: the number of tokens of the text, special ones included.
        """
        return None if self.prompted.answers else self.template.length - source


@dataclass(frozen=True)
class WritingTask(Task):
    """A task without a new head, whose model is saved as a run."""

    @property
    @abstractmethod
    def max_tokens(self) -> int | None:
        """The most tokens of an answer to write; None for those of the longest of training."""

    def head(self, d_model: int, labels: Labels) -> None:
        """Return None: the head is the output layer of pretraining."""

    def loss(self, outputs: Tensor, targets: Tensor, numbers: Tensor) -> Loss:
        """Return the cross-entropy of the answers' tokens, which the output layer computed.

        Args:
            outputs: nats, of all tokens or of each.
            targets: (tokens,), or with the weight of each, (tokens, 2).
        """
        total = outputs.sum()
        if targets.ndim > 1:
            return Loss(total, targets[:, 1].sum().to(total.dtype))
        return Loss(total, total.new_tensor(float(len(targets))))

    @abstractmethod
    def starts(
        self, examples: Sequence[Labelled], form: AnswerForm, most: int
    ) -> tuple[list[Start], int]:
        """Return what the answer to each example begins with, and how many examples were cut.

        Args:
            examples: without labels.
            most: the most tokens of an answer.
        """

    @abstractmethod
    def most_tokens(self, labels: Labels, prompted: TrainedModel) -> int:
        """Return the most tokens of an answer to write, its end included."""

    def writes_for(self, prompted: TrainedModel) -> bool:
        """Return whether a model's answers have to be written to be scored."""
        return self.judge.writes

    def answer_of(self, text: str, labels: Labels) -> str:
        """Return the answer that a written text stands for."""
        return text

    def chat_template(self, form: AnswerForm) -> str:
        """Return the Jinja template of conversations for `transformers`; "" without any."""
        return ""
