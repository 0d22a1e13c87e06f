"""Conversations: messages of a system, a user and an assistant in turn, and their tokens.

    messages   user: hi / assistant: hello / user: who? / assistant: me
    decoder    <|user|>hi</s><|assistant|>hello</s><|user|>who?</s><|assistant|>me</s>
    scored                                hello</s>                             me</s>
    source     <|user|>hi<|assistant|>hello<|user|>who?</s>             target  me</s>

A decoder reads the whole, an encoder-decoder a source and a target for each answer. Role tokens
stand between texts, so that each is cut into tokens by itself, and a template of `transformers`
gives the same ids.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from foreword.disk import stored
from foreword.evaluation.starts import Start
from foreword.runs.trained_model import TrainedModel
from foreword.settings.ranges import Count
from foreword.tables.chat import ASSISTANT, ROLES, SYSTEM, USER, Message, of_text
from foreword.tables.examples import Labelled
from foreword.text.special import EOS
from foreword.text.tokenizer import Tokenizer
from foreword.tuning.input_template import InputTemplate
from foreword.tuning.tasks._contract import Labels, Needs
from foreword.tuning.tasks._writing import AnswerForm, WritingTask
from foreword.types import Array

SOURCE_ENDS = 3  # the most tokens that begin and end a source: mode, bos, eos
ROLE_TOKENS = tuple(f"<|{role}|>" for role in ROLES)
SPECIAL_TOKENS = (EOS, *ROLE_TOKENS)


@dataclass(frozen=True)
class ChatTokens:
    """The tokens of conversations.

    Attributes:
        bos: before a conversation, none or one.
        end: after each message in a decoder.
        roles: before the messages of each role.
    """

    tokenizer: Tokenizer
    bos: tuple[int, ...]
    end: int
    roles: Mapping[str, int]
    length: int

    @classmethod
    def of(cls, tokenizer: Tokenizer, template: InputTemplate) -> ChatTokens:
        """Return the tokens of a model, whose tokenizer has those of the roles."""
        bos = tuple(i for i in template.prefix if i not in template.fresh)
        ids = [int(tokenizer.encode(name, special=True)[0]) for name in ROLE_TOKENS]
        roles = dict(zip(ROLES, ids, strict=True))
        return cls(tokenizer, bos, tokenizer.vocab.id(EOS), roles, template.length)

    def whole(self, messages: Sequence[Message]) -> tuple[Array, Array, bool]:
        """Return a conversation as a decoder reads it, cut to the length.

        The oldest exchanges are left out first. A single one that is too long loses the beginning
        of its question and, beyond half the length, the end of its answer.

        Returns:
            ids (length,) int64, which of them are answers and their ends (length,) bool, and
            whether anything was left out.
        """
        turns, is_cut = self._recent_turns(messages, 2, self.length - len(self.bos), has_ends=True)
        ids = [*self.bos, *(i for turn in turns for i in turn)]
        is_answer = [False] * len(self.bos)
        for turn in turns:
            is_answer += [False, *[turn[0] == self.roles[ASSISTANT]] * (len(turn) - 1)]
        if len(ids) > self.length:
            begin = len(ids) - len(turns[-1]) + 1
            answer = max(min(len(ids) - begin, self.length // 2), self.length - begin)
            left = slice(begin - (self.length - answer), begin + answer)
            ids, is_answer, is_cut = ids[left], is_answer[left], True
        return np.asarray(ids, np.int64), np.asarray(is_answer, bool), is_cut

    def prompt(self, messages: Sequence[Message], room: int) -> tuple[Array, bool]:
        """Return what a decoder continues with an answer, and whether anything was left out."""
        turns, is_cut = self._recent_turns(messages, 1, room - len(self.bos) - 1, has_ends=True)
        ids = [*self.bos, *(i for turn in turns for i in turn), self.roles[ASSISTANT]]
        return np.asarray(ids[-room:], np.int64), is_cut or len(ids) > room

    def source(self, messages: Sequence[Message], room: int) -> tuple[Array, bool]:
        """Return the source that an encoder-decoder answers, without its special tokens."""
        turns, is_cut = self._recent_turns(messages, 1, room, has_ends=False)
        ids = [i for turn in turns for i in turn]
        return np.asarray(ids[-room:], np.int64), is_cut or len(ids) > room

    def _recent_turns(
        self, messages: Sequence[Message], least: int, room: int, *, has_ends: bool
    ) -> tuple[list[list[int]], bool]:
        """Return the tokens of each message, without the oldest exchanges that have no room."""
        contents = self.tokenizer.encode_batch([message.content for message in messages])
        ends = [self.end] if has_ends else []
        turns = [
            [self.roles[message.role], *ids, *ends]
            for message, ids in zip(messages, contents, strict=True)
        ]
        first = int(messages[0].role == SYSTEM)
        while sum(map(len, turns)) > room and len(turns) - first > least:
            del turns[first : first + 2]
        return turns, len(turns) < len(messages)


def jinja(tokenizer: Tokenizer, begin: Sequence[int], end: int, *, has_ends: bool) -> str:
    """Return the template of `transformers` that gives the same ids for a conversation.

    Args:
        begin: ids before a conversation.
        end: the id after each message, or after a source.
        has_ends: whether it is after each message, as in a decoder.
    """
    begins, after = "".join(map(tokenizer.token, begin)), tokenizer.token(end)
    quoted = stored.to_json
    each = f" + {quoted(after)}" if has_ends else ""
    answer = f"{{{{ {quoted(ROLE_TOKENS[-1])} }}}}"
    last = f"{{%- if add_generation_prompt -%}}{answer}{{%- endif -%}}"
    return (
        f"{{{{ {quoted(begins)} }}}}{{%- for message in messages -%}}"
        "{{ '<|' + message['role'] + '|>' + message['content']" + each + " }}{%- endfor -%}"
    ) + (last if has_ends else f"{{{{ {quoted(after)} }}}}")


@dataclass(frozen=True)
class ConversationTask(WritingTask):
    """A task whose examples are conversations; the text of one is its messages.

    Attributes:
        max_tokens: the most tokens of an answer that `foreword predict` writes.
    """

    needs: ClassVar[Needs] = Needs(continues=True, special_tokens=SPECIAL_TOKENS)

    max_tokens: Count = 128

    def most_tokens(self, labels: Labels, prompted: TrainedModel) -> int:
        """Return the setting."""
        return self.max_tokens

    def source_room(self, template: InputTemplate) -> int:
        """Return the most tokens of a source, without what begins and ends it."""
        length = template.length
        if template.joins_answer:
            length = max(length - self.max_tokens, length // 2)
        return length - SOURCE_ENDS

    def starts(
        self, examples: Sequence[Labelled], form: AnswerForm, most: int
    ) -> tuple[list[Start], int]:
        """Return what the answer to the last question of each conversation begins with."""
        template = form.template
        tokens = ChatTokens.of(form.prompted.tokenizer, template)
        limit = form.prompted.limit or tokens.length
        room = max(min(tokens.length, limit) - most, tokens.length // 2)
        starts, cut = [], 0
        for example in examples:
            messages = of_text(example.text)
            last = max(n for n, message in enumerate(messages) if message.role == USER)
            if template.is_causal:
                ids, was_cut = tokens.prompt(messages[: last + 1], room)
                starts.append(Start(None, ids))
            else:
                ids, was_cut = tokens.source(messages[: last + 1], self.source_room(template))
                starts.append(form.start(form.source(ids)))
            cut += was_cut
        return starts, cut

    def chat_template(self, form: AnswerForm) -> str:
        """Return the template with which `transformers` gives the same ids."""
        tokenizer = form.prompted.tokenizer
        if form.template.is_causal:
            tokens = ChatTokens.of(tokenizer, form.template)
            return jinja(tokenizer, tokens.bos, tokens.end, has_ends=True)
        *begins, end = form.source(np.zeros(0, np.int64)).tolist()
        return jinja(tokenizer, begins, end, has_ends=False)
