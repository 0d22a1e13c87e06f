"""Answers in the dialect of OpenAI: completions, chat, embeddings, errors, and their chunks."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from secrets import token_hex
from typing import Any

import numpy as np

from foreword.serving.written import Piece, WrittenToken
from foreword.text.tokenizer import Tokenizer
from foreword.types import Array

NAMES = {False: ("cmpl", "text_completion"), True: ("chatcmpl", "chat.completion")}


@dataclass
class TextAnswer:
    """The answer to a request for texts, whole or in chunks.

    Attributes:
        model: the model's name.
        tokenizer: names tokens.
        is_chat: whether the texts answer a conversation.
        has_log_probs: whether log-probabilities were asked for.
        prompt_tokens: tokens of the prompts.
        new_tokens: tokens of the texts so far.
    """

    model: str
    tokenizer: Tokenizer
    is_chat: bool
    has_log_probs: bool
    prompt_tokens: int
    new_tokens: int = 0
    _begun: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        short, self._kind = NAMES[self.is_chat]
        self._frame = {
            "id": f"{short}-{token_hex(12)}",
            "object": self._kind,
            "created": int(time.time()),
            "model": self.model,
        }

    def whole(self, pieces: Iterable[Piece]) -> dict[str, Any]:
        """Return the answer of all pieces."""
        texts: dict[int, list[Piece]] = {}
        for piece in pieces:
            texts.setdefault(piece.number, []).append(piece)
        choices = []
        for number, parts in sorted(texts.items()):
            text = "".join(part.text for part in parts)
            tokens = [token for part in parts for token in part.tokens]
            choice = self._choice(Piece(number, text, tokens, parts[-1].finish), "message")
            choices.append(choice)
        return {**self._frame, "choices": choices, "usage": self.usage}

    def chunk(self, piece: Piece) -> dict[str, Any]:
        """Return a piece as a chunk of a stream."""
        kind = f"{self._kind}.chunk" if self.is_chat else self._kind
        return {**self._frame, "object": kind, "choices": [self._choice(piece, "delta")]}

    def last_chunk(self) -> dict[str, Any]:
        """Return the chunk that counts the tokens."""
        return {**self._frame, "choices": [], "usage": self.usage}

    @property
    def usage(self) -> dict[str, int]:
        """The counts of tokens."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.new_tokens,
            "total_tokens": self.prompt_tokens + self.new_tokens,
        }

    def _choice(self, piece: Piece, message: str) -> dict[str, Any]:
        log_probs = None
        if self.has_log_probs:
            named = _chat_log_probs if self.is_chat else _log_probs
            log_probs = named(piece.tokens, self.tokenizer)
        choice = {"index": piece.number, "logprobs": log_probs, "finish_reason": piece.finish}
        if not self.is_chat:
            return {"text": piece.text, **choice}
        is_first = message == "message" or piece.number not in self._begun
        self._begun.add(piece.number)
        role = {"role": "assistant"} if is_first else {}
        return {**choice, message: {**role, "content": piece.text}}


def _spelling(tokenizer: Tokenizer, token: int) -> bytes:
    """Return a token's text in UTF-8; of a special one, its name."""
    return tokenizer.vocab.spellings[token]


def _name(tokenizer: Tokenizer, token: int) -> str:
    """Return a token's text; part of a character as `bytes:\\xe2\\x82`."""
    spelled = _spelling(tokenizer, token)
    try:
        return spelled.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in spelled)


def _log_probs(tokens: Sequence[WrittenToken], tokenizer: Tokenizer) -> dict[str, Any]:
    name, best = partial(_name, tokenizer), list[dict[str, float] | None]()
    for token in tokens:
        others: dict[str, float] = {}
        for i, nats in token.alternatives:
            others.setdefault(name(i), nats)
        if token.nats is not None and token.alternatives:
            others.setdefault(name(token.id), token.nats)
        best.append(others if token.nats is not None else None)
    return {
        "tokens": [name(token.id) for token in tokens],
        "token_logprobs": [token.nats for token in tokens],
        "top_logprobs": best,
        "text_offset": [token.offset for token in tokens],
    }


def _chat_log_probs(tokens: Sequence[WrittenToken], tokenizer: Tokenizer) -> dict[str, Any]:
    def named(token: int, nats: float | None) -> dict[str, Any]:
        spelled = list(_spelling(tokenizer, token))
        return {"token": _name(tokenizer, token), "logprob": nats, "bytes": spelled}

    content = []
    for token in tokens:
        best = [named(*other) for other in token.alternatives]
        content.append({**named(token.id, token.nats), "top_logprobs": best})
    return {"content": content, "refusal": None}


def embeddings(
    model: str, vectors: Sequence[Array], tokens: int, *, as_base64: bool
) -> dict[str, Any]:
    """Return vectors as the answer to a request for embeddings."""
    rows = [np.asarray(vector, "<f4") for vector in vectors]
    shown: list[Any] = [row.tolist() for row in rows]
    if as_base64:
        shown = [base64.b64encode(row.tobytes()).decode() for row in rows]
    data = [{"object": "embedding", "index": n, "embedding": v} for n, v in enumerate(shown)]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": data, "model": model, "usage": usage}


def error(status: int, message: str, param: str | None = None) -> dict[str, Any]:
    """Return an error.

    Args:
        status: that of HTTP.
        message: one line.
        param: the key of the request that is wrong.
    """
    kinds = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
    kind = kinds.get(status, "invalid_request_error" if status < 500 else "server_error")
    return {"error": {"message": message, "type": kind, "param": param, "code": status}}
