"""Instructions and conversations: the model learns to write the assistant's answers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from foreword.tables.chat import ASSISTANT, USER, Message, of_text, read_messages, to_text
from foreword.tables.columns import Columns, text_of
from foreword.tables.examples import Labelled
from foreword.text.tokenizer import Tokenizer
from foreword.tuning.encoded import EncodedTexts, Ragged
from foreword.tuning.input_template import InputTemplate
from foreword.tuning.tasks._contract import EncodedExample, Inputs, Judge, Labels, RowReader
from foreword.tuning.tasks._conversations import ChatTokens, ConversationTask
from foreword.types import Array


def read_conversation(row: Mapping[str, Any], columns: Columns, source: str) -> Labelled | None:
    """Return the conversation of a row, its label the number of answers."""
    value = row.get(columns.text)
    if isinstance(value, str):
        answer = text_of(row.get(columns.label), source) if columns.label else ""
        messages = [Message(USER, value), *[Message(ASSISTANT, answer)] * bool(answer.strip())]
    else:
        messages = read_messages(value, source) if value is not None else []
    if not any(message.role == USER for message in messages):
        return None
    answers = sum(message.role == ASSISTANT for message in messages)
    return Labelled(to_text(messages), str(answers) if answers else "", source=source)


class PerplexityJudge(Judge):
    """The perplexity of the answers, and the share of right tokens.

    Outputs are the likeliest token at each position and the nats of the right one, (tokens, 2);
    targets the answers, a sequence of (tokens,) int64.
    """

    scores_untuned: ClassVar[bool] = True
    names: ClassVar[tuple[str, ...]] = ("perplexity", "tokens")
    lower_is_better: ClassVar[tuple[str, ...]] = ("perplexity",)
    not_shares: ClassVar[tuple[str, ...]] = ("perplexity",)

    def scores(self, outputs: Array, targets: Any) -> dict[str, float]:
        right = np.concatenate(list(targets))
        nats = float(outputs[:, 1].mean(dtype=np.float64))
        return {
            "perplexity": math.exp(min(nats, 700.0)),
            "tokens": float(np.mean(outputs[:, 0].astype(np.int64) == right)),
        }

    def baselines(self, train: Any, dev: Any, labels: Labels) -> Mapping[str, Array]:
        """Return the unigrams of the training answers, with one added to each count."""
        seen, right = np.concatenate(list(train)), np.concatenate(list(dev))
        counts = np.bincount(seen, minlength=int(max(seen.max(), right.max())) + 1) + 1.0
        nats = -np.log(counts / counts.sum())
        likeliest = np.full(len(right), float(counts.argmax()))
        return {"unigrams of answers": np.stack([likeliest, nats[right]], axis=1)}


@dataclass(frozen=True)
class Chat(ConversationTask):
    """Conversations, with a loss on the assistant's answers alone.

    {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]}

    A system message may begin; then user and assistant take turns. Rows of `prompt` and
    `completion` are a question with its answer. Each message stands after a token of its role,
    which is added to the tokenizer, and in a decoder before `</s>`:

    <|user|>hi</s><|assistant|>hello</s>        scored: hello</s>

    A decoder reads a conversation once, as does a model that can be used as one (layout `hybrid`);
    a model with a source reads, for each answer, what came before. Where a conversation is too
    long, its oldest exchanges are left out. A model of masked diffusion reads source and answer in
    one row, and of the answer, in `max_tokens` positions, a random share is masked:

    <|user|>hi[SEP]hello</s></s>...             masked and scored: hello</s></s>...

    Dev answers are measured by their perplexity, and by the share of right tokens, each after the
    right ones; unigrams of the training answers stand beside. Masked diffusion predicts each token
    given a random part of the others, and its perplexity is a bound, at most. The template is kept
    in the tuned run, for `apply_chat_template` of `transformers` after `foreword export`; `foreword
    predict` writes the answer to each row's last question.

    Also called: instruction tuning, supervised fine-tuning (SFT).
    Reference: Ouyang et al. 2022, section 3.5, the first step; Wei et al. 2022, FLAN.
    """

    reader: ClassVar[RowReader] = RowReader(
        read_conversation,
        (Columns("messages", "", ""), Columns("prompt", "completion", "")),
        takes_texts=False,
    )
    judge: ClassVar[Judge] = PerplexityJudge()

    def encode(
        self, examples: Sequence[Labelled], tokenizer: Tokenizer, template: InputTemplate
    ) -> Sequence[EncodedExample]:
        """Return each conversation as one input, or an input for each answer."""
        tokens = ChatTokens.of(tokenizer, template)
        each = (
            self._whole
            if template.is_causal
            else partial(self._answers, room=self.source_room(template))
        )
        return EncodedTexts.of(
            encoded for e in examples for encoded in each(of_text(e.text), tokens)
        )

    def _whole(self, messages: Sequence[Message], tokens: ChatTokens) -> Iterator[EncodedExample]:
        """Yield what a decoder reads, with the positions before those of answers."""
        last = max(n for n, message in enumerate(messages) if message.role == ASSISTANT)
        ids, is_answer, was_cut = tokens.whole(messages[: last + 1])
        before = np.flatnonzero(is_answer[1:])
        yield EncodedExample(ids, np.zeros_like(ids), before, was_cut)

    def _answers(
        self, messages: Sequence[Message], tokens: ChatTokens, room: int
    ) -> Iterator[EncodedExample]:
        """Yield a source and its answer, for each answer."""
        answered = [n for n, message in enumerate(messages) if message.role == ASSISTANT]
        for n in answered:
            ids, was_cut = tokens.source(messages[:n], room)
            answer = np.asarray(tokens.tokenizer.encode(messages[n].content), np.int64)
            answer = answer[: tokens.length]
            yield EncodedExample(
                ids, np.zeros_like(ids), ids[:0], was_cut, answer=answer, is_further=n > answered[0]
            )

    def targets(self, examples: Sequence[Labelled], labels: Labels, encoded: Inputs = ()) -> Ragged:
        """Return the tokens of answers in each conversation."""
        return Ragged.of(example.written for example in encoded)
