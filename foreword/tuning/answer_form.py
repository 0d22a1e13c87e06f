"""The special tokens around a text and its answer, and how much of both has room.

model with a source    source [a film </s>]    target [fine </s>]
decoder                [a film [SEP] fine </s>]            scored: fine </s>
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from foreword.errors import UserError
from foreword.evaluation.prompting import PromptedModel
from foreword.evaluation.starts import Start
from foreword.text.special import EOS, SEP
from foreword.tuning.input_template import InputTemplate
from foreword.types import Array

DECODER_TOKENS = (SEP, EOS)  # between a text and its answer, and after the answer


@dataclass(frozen=True)
class AnswerForm:
    """The form in which a model reads texts and answers them.

    A model with a source has that of pretraining; its template's length is that of the source. A
    decoder reads text and answer in one row, of at most the template's length, which begins as the
    prompts that it continues.

    Attributes:
        prompted: the model.
        template: the input template.
    """

    prompted: PromptedModel
    template: InputTemplate

    @classmethod
    def of(cls, prompted: PromptedModel, template: InputTemplate) -> AnswerForm:
        """Return the form of a model.

        Raises:
            UserError: it writes no text.
        """
        if not prompted.answers and not (prompted.continues and template.is_causal):
            raise UserError(
                f"{prompted.name}: this {prompted.family} was not trained to write text; --task "
                "text_to_text, chat and prefer work with models that answer a source (layouts "
                "encoder_decoder and prefix, such as t5_mini) or continue text (decoder and "
                "hybrid, such as gpt2_mini and gpt_bert_mini); --task classify and span work with "
                "any"
            )
        return cls(prompted, template)

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
        """Return what an answer begins with.

        Args:
            source: the text with its special tokens.
        """
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
