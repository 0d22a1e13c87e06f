"""Conversations as tables hold them: messages of a system, a user and an assistant in turn."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from foreword.disk import stored
from foreword.errors import UserError
from foreword.tables.columns import text_of

SYSTEM, USER, ASSISTANT = ROLES = ("system", "user", "assistant")
TURN = re.compile(r"\n\n(Human|Assistant):")  # begins a message in the texts of HH-RLHF


class Message(NamedTuple):
    """A message of one of the roles."""

    role: str
    content: str


def read_messages(value: Any, source: str) -> list[Message]:
    """Return the messages of a cell: a list of tables with `role` and `content`.

    Raises:
        UserError: it is something else, or the roles are out of order.
    """
    if not isinstance(value, list | tuple | np.ndarray):
        raise UserError(f"{source}: expected a list of messages, got {value!r:.40}")
    messages = []
    for number, item in enumerate(value, 1):
        if not isinstance(item, Mapping) or not {"role", "content"} <= set(item):
            raise UserError(
                f"{source}: message {number}: expected 'role' and 'content', got {item!r:.40}"
            )
        if not isinstance(item["content"], str):
            raise UserError(
                f"{source}: message {number}: 'content' must be text, got {item['content']!r:.40}"
            )
        messages.append(Message(str(item["role"]), text_of(item["content"], source)))
    _require_order(messages, source)
    return messages


def read_turns(text: str, source: str) -> list[Message] | None:
    """Return the messages of a text in the form of HH-RLHF; None for another text.

        Human: hi

        Assistant: hello

    Raises:
        UserError: the roles are out of order.
    """
    before, *parts = TURN.split(f"\n\n{text.lstrip()}")
    if before or not parts:
        return None
    roles = {"Human": USER, "Assistant": ASSISTANT}
    pairs = zip(parts[::2], parts[1::2], strict=True)
    messages = [Message(roles[role], content.strip()) for role, content in pairs]
    _require_order(messages, source)
    return messages


def _require_order(messages: Sequence[Message], source: str) -> None:
    """Check that a system may begin, and that user and assistant take turns."""
    first = 1 if messages and messages[0].role == SYSTEM else 0
    for number, message in enumerate(messages[first:], first):
        expected = USER if (number - first) % 2 == 0 else ASSISTANT
        if message.role != expected:
            or_system = f" or {SYSTEM}" if number == 0 else ""
            raise UserError(
                f"{source}: message {number + 1} is by '{message.role}', expected "
                f"{expected}{or_system}"
            )
        if message.role == ASSISTANT and not message.content.strip():
            raise UserError(f"{source}: message {number + 1}: the answer is empty")


def to_text(messages: Sequence[Message]) -> str:
    """Return messages as the text of an example."""
    return stored.to_json(messages)


def of_text(text: str) -> list[Message]:
    """Return the messages of an example."""
    return [Message(*fields) for fields in json.loads(text)]
