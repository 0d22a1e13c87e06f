"""The base of tasks about conversations, whose model writes the assistant's answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from foreword.evaluation.prompting import PromptedModel
from foreword.evaluation.starts import Start
from foreword.settings.ranges import Count
from foreword.tables.chat import USER, of_text
from foreword.tables.examples import Labelled
from foreword.text.special import EOS
from foreword.tuning.conversations import SPECIAL_TOKENS, ChatTokens, jinja
from foreword.tuning.input_template import InputTemplate
from foreword.tuning.writing import WritingTask
from foreword.types import Array

SOURCE_ENDS = 3  # the most tokens that begin and end a source: mode, bos, eos


@dataclass(frozen=True)
class ConversationTask(WritingTask):
    """A task whose examples are conversations; the text of one is its messages.

    Attributes:
        max_tokens: the most tokens of an answer that `foreword predict` writes.
    """

    reads_texts: ClassVar[bool] = False
    continues: ClassVar[bool] = True
    special_tokens: ClassVar[tuple[str, ...]] = SPECIAL_TOKENS

    max_tokens: Count = 128

    def labels(self, train: Sequence[Labelled]) -> tuple[str, ...]:
        """Return nothing: the model may write any answer."""
        return ()

    def targets(self, examples: Sequence[Labelled], labels: tuple[str, ...]) -> Array:
        """Return zeros: the targets are the tokens of the inputs."""
        return np.zeros(len(examples), dtype=np.int64)

    def most_tokens(self, labels: tuple[str, ...], prompted: PromptedModel) -> int:
        """Return the setting."""
        return self.max_tokens

    def starts(
        self,
        examples: Sequence[Labelled],
        prompted: PromptedModel,
        template: InputTemplate,
        most: int,
    ) -> tuple[list[Start], int]:
        """Return what the answer to the last question of each conversation begins with."""
        tokens = ChatTokens.of(prompted.tokenizer, template)
        limit = prompted.limit or tokens.length
        room = max(min(tokens.length, limit) - most, tokens.length // 2)
        starts, cut = [], 0
        for example in examples:
            messages = of_text(example.text)
            last = max(n for n, message in enumerate(messages) if message.role == USER)
            if template.is_causal:
                ids, was_cut = tokens.prompt(messages[: last + 1], room)
                starts.append(Start(None, ids))
            else:
                ids, was_cut = tokens.source(messages[: last + 1], tokens.length - SOURCE_ENDS)
                starts.append(Start(prompted.source_of(ids), ids[:0]))
            cut += was_cut
        return starts, cut

    def chat_template(self, prompted: PromptedModel, template: InputTemplate) -> str:
        """Return the template with which `transformers` gives the same ids."""
        if template.is_causal:
            begin = ChatTokens.of(prompted.tokenizer, template).bos
            end = prompted.vocab.id(EOS)
            return jinja(prompted.tokenizer, begin, end, has_ends=True)
        *begins, end = prompted.source_of(np.zeros(0, np.int64)).tolist()
        return jinja(prompted.tokenizer, begins, end, has_ends=False)
