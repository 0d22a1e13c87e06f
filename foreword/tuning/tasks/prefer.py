"""Preferences: of two answers the better one becomes more likely than the worse one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from foreword.errors import UserError
from foreword.settings.ranges import Positive
from foreword.tables.chat import (
    ASSISTANT,
    USER,
    Message,
    of_text,
    read_messages,
    read_turns,
    to_text,
)
from foreword.tables.columns import Columns, text_of
from foreword.tables.examples import Labelled
from foreword.text.tokenizer import Tokenizer
from foreword.tuning.encoded import EncodedTexts
from foreword.tuning.input_template import InputTemplate
from foreword.tuning.tasks._contract import EncodedExample, Inputs, Judge, Labels, Needs, RowReader
from foreword.tuning.tasks._conversations import SOURCE_ENDS, ChatTokens, ConversationTask
from foreword.types import Array, Loss

REJECTED = "rejected"  # the column


def read_preference(row: Mapping[str, Any], columns: Columns, source: str) -> Labelled | None:
    """Return the prompt of a row, the chosen answer as its label, the rejected one as its pair."""
    value = row.get(columns.text)
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    names = columns.label, columns.pair or REJECTED
    if not columns.label:
        messages = _prompt(value, source, may_be_answered=True)
        return Labelled(to_text(messages), source=source)
    # Several messages in a cell are a conversation, and not an answer alone.
    cells = [row.get(name) for name in names]
    are_lists = all(isinstance(c, list | tuple | np.ndarray) and len(c) > 1 for c in cells)
    if columns.text == columns.label or are_lists:
        messages, chosen, rejected = _common_prompt(row, names, source)
        if columns.text != columns.label and not set(_prompt(value, source)) <= set(messages):
            raise UserError(f"{source}: '{columns.text}' is not in the conversations")
    else:
        messages = _prompt(value, source)
        chosen, rejected = (_answer(row.get(name), name, source) for name in names)
    if chosen == rejected:
        raise UserError(f"{source}: the chosen and the rejected answer are the same")
    return Labelled(to_text(messages), chosen, rejected, source)


@dataclass(frozen=True)
class Prefer(ConversationTask):
    """Preferences between two answers, learned directly (DPO).

    Rows have `prompt`, a text or a list of messages, and the answers `chosen` and `rejected`;
    `--text`, `--label` and `--pair` name other columns. The answers may also be whole
    conversations that differ in their last answer alone, as in UltraFeedback: lists of messages, or
    texts of "Human: ... Assistant: ..." as in HH-RLHF. Then no `prompt` is needed (of columns with
    other names, `--text` and `--label` are the same).
    Conversations have the form of `chat`, whose tuned run is the usual start:

        foreword tune RUN --task chat --name sft ...
        foreword tune RUN/tuned/sft --task prefer --lr 2e-5 ...

    The loss of a pair is -log sigmoid(beta * margin): the margin is how much more the chosen answer
    than the rejected one has gained in log-probability since the start of tuning. That model is
    the reference; it computes its log-probabilities once.

    A decoder reads the prompt before each answer; a model with a source reads it there.

    Dev pairs are measured by the share with a margin above 0 (the accuracy of the implicit
    reward), by the loss and by beta * margin. Before tuning all margins are 0 and half the pairs
    right; the longer answer stands beside.

    Attributes:
        beta: how much a departure from the reference costs.

    Also called: DPO, direct preference optimization.
    Reference: Rafailov et al. 2023, section 4, equation 7.
    """

    reader: ClassVar[RowReader] = RowReader(
        read_preference,
        (
            Columns("prompt", "chosen", REJECTED),
            Columns("chosen", "chosen", REJECTED),  # whole conversations
        ),
        takes_texts=False,
        to_predict=lambda of: Columns("prompt" if of.text == of.label else of.text, "", ""),
    )
    needs: ClassVar[Needs] = replace(
        ConversationTask.needs, loss_unit="example", has_reference=True
    )

    beta: Positive = 0.1

    @property
    def judge(self) -> Judge:
        return PreferenceJudge(self.beta)

    def encode(
        self, examples: Sequence[Labelled], tokenizer: Tokenizer, template: InputTemplate
    ) -> Sequence[EncodedExample]:
        """Return the prompt with the chosen answer, and with the rejected one."""
        tokens = ChatTokens.of(tokenizer, template)
        pair = _pair if template.is_causal else _pair_with_source
        return EncodedTexts.of(encoded for e in examples for encoded in pair(e, tokens))

    def targets(
        self, examples: Sequence[Labelled], labels: Labels, encoded: Inputs = ()
    ) -> PairedAnswers:
        """Return the tokens of the answers."""
        ids = [example.written for example in encoded]
        lengths = np.asarray(list(map(len, ids)))
        is_rejected = np.repeat([example.is_further for example in encoded], lengths)
        columns = np.zeros((int(lengths.sum()), 3))
        columns[:, 0], columns[:, 1] = np.concatenate(ids), is_rejected
        return PairedAnswers(columns, np.concatenate([[0], lengths.cumsum()]))

    def loss(self, outputs: Tensor, targets: Tensor, numbers: Tensor) -> Loss:
        """Return -log sigmoid(beta * margin) of each pair.

        Args:
            outputs: at each token of the answers the likeliest one and the nats of the right one,
                (tokens, 2).
            targets: the token, whether it is of the rejected answer, and its nats in the
                reference, (tokens, 3).
            numbers: the pair of each token.
        """
        gains = (targets[:, 2].float() - outputs[:, 1]) * (1 - 2 * targets[:, 1].float())
        pairs, which = torch.unique_consecutive(numbers, return_inverse=True)
        margins = gains.new_zeros(len(pairs)).scatter_add(0, which, gains)
        total = -F.logsigmoid(self.beta * margins).sum()
        return Loss(total, total.new_tensor(float(len(pairs))))


@dataclass(frozen=True)
class PreferenceJudge(Judge):
    """The share of margins above 0, where 0 counts half, the loss and the mean reward.

    Outputs are those of the loss, (tokens, 2).
    """

    beta: float
    names: ClassVar[tuple[str, ...]] = ("accuracy", "loss", "margin")
    lower_is_better: ClassVar[tuple[str, ...]] = ("loss",)
    not_shares: ClassVar[tuple[str, ...]] = ("loss", "margin")

    def scores(self, outputs: Array, targets: PairedAnswers) -> dict[str, float]:
        gains = targets.columns[:, 2] - outputs[:, 1].astype(np.float64)
        answer_gains = np.add.reduceat(gains, targets.begins[:-1])
        margins = answer_gains[0::2] - answer_gains[1::2]
        return {
            "accuracy": float(np.mean((margins > 0) + (margins == 0) / 2)),
            "loss": float(np.logaddexp(0, -self.beta * margins).mean()),
            "margin": float(self.beta * margins.mean()),
        }

    def baselines(
        self, train: PairedAnswers, dev: PairedAnswers, labels: Labels
    ) -> Mapping[str, Array]:
        """Return a gain of 1 for each token: the longer answer wins."""
        return {"longer answer": np.stack([dev.columns[:, 0], dev.columns[:, 2] - 1], axis=1)}


@dataclass(frozen=True)
class PairedAnswers(Sequence[Array]):
    """The tokens of chosen and rejected answers in turn.

    Attributes:
        columns: each token, whether it is of a rejected answer, and its nats in the reference,
            (tokens, 3) float64.
        begins: where each answer begins, and where the last one ends, (answers + 1,).
    """

    columns: Array
    begins: Array

    def __len__(self) -> int:
        return len(self.begins) - 1

    def __getitem__(self, which: Any) -> Any:
        n = range(len(self))[which]
        return self.columns[self.begins[n] : self.begins[n + 1]]

    def with_reference(self, outputs: Array) -> PairedAnswers:
        """Return the answers with the reference's outputs for their tokens, (tokens, 2)."""
        columns = self.columns.copy()
        columns[:, 2] = outputs[:, 1]
        return replace(self, columns=columns)


def _pair(example: Labelled, tokens: ChatTokens) -> Iterator[EncodedExample]:
    """Yield both answers after the same prompt in a decoder, all of them cut to the length."""
    encoded = tokens.tokenizer.encode_batch([example.label, example.pair or ""])
    answers = [[*ids, tokens.end] for ids in encoded]
    longest = max(map(len, answers))
    room = max(tokens.length - longest, tokens.length // 2)
    prompt, prompt_was_cut = tokens.prompt(of_text(example.text), room)
    for number, answer in enumerate(answers):
        cut_answer = answer[: tokens.length - len(prompt)]
        ids = np.concatenate([prompt, np.asarray(cut_answer, np.int64)])
        before = np.arange(len(prompt) - 1, len(ids) - 1)
        was_cut = prompt_was_cut or len(cut_answer) < len(answer)
        yield EncodedExample(ids, np.zeros_like(ids), before, was_cut, is_further=number > 0)


def _pair_with_source(example: Labelled, tokens: ChatTokens) -> Iterator[EncodedExample]:
    """Yield both answers to the same source, each cut to the length."""
    ids, source_was_cut = tokens.source(of_text(example.text), tokens.length - SOURCE_ENDS)
    for number, text in enumerate((example.label, example.pair or "")):
        answer = np.asarray(tokens.tokenizer.encode(text), np.int64)
        cut_answer = answer[: tokens.length]
        was_cut = source_was_cut or len(cut_answer) < len(answer)
        yield EncodedExample(
            ids, np.zeros_like(ids), ids[:0], was_cut, answer=cut_answer, is_further=number > 0
        )


def _prompt(value: Any, source: str, *, may_be_answered: bool = False) -> list[Message]:
    """Return a prompt, a text or a list of messages, up to its last question."""
    messages = [Message(USER, value)]
    if not isinstance(value, str):
        messages = read_messages(value, source)
    elif may_be_answered:
        messages = read_turns(value, source) or messages
    if may_be_answered and messages and messages[-1].role == ASSISTANT:
        messages = messages[:-1]
    if not messages or messages[-1].role != USER:
        raise UserError(f"{source}: the prompt does not end with a message of the {USER}")
    return messages


def _common_prompt(
    row: Mapping[str, Any], names: tuple[str, str], source: str
) -> tuple[list[Message], str, str]:
    """Return what two conversations begin with, and the last answer of each."""
    begins, answers = [], []
    for name in names:
        value = row.get(name)
        is_text = value is None or isinstance(value, str)
        messages = read_turns(value or "", source) if is_text else read_messages(value, source)
        if not messages or messages[-1].role != ASSISTANT:
            raise UserError(
                f"{source}: '{name}' is not a conversation that ends with an answer (a list of "
                "messages, or 'Human: ... Assistant: ...'); answers alone need a column 'prompt'"
            )
        begins.append(messages[:-1])
        answers.append(messages[-1].content)
    if begins[0] != begins[1]:
        raise UserError(
            f"{source}: the conversations of '{names[0]}' and '{names[1]}' differ before their "
            "last answers; expected the same beginning"
        )
    return begins[0], answers[0], answers[1]


def _answer(value: Any, name: str, source: str) -> str:
    """Return an answer: a text, or a list of one message of the assistant."""
    if isinstance(value, list | tuple | np.ndarray):
        is_one = len(value) == 1 and isinstance(value[0], Mapping)
        message = dict(value[0]) if is_one else {}
        if message.get("role") != ASSISTANT or not isinstance(message.get("content"), str):
            raise UserError(
                f"{source}: '{name}' is not a text, nor a list of one message of the {ASSISTANT}"
            )
        value = message["content"]
    answer = text_of(value, source)
    if not answer.strip():
        raise UserError(f"{source}: '{name}' is missing or empty")
    return answer
