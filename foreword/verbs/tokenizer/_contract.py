"""Train or inspect a tokenizer, or watch BPE learn."""

from __future__ import annotations

from abc import ABC
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from foreword.display.results import Facts, Output
from foreword.verbs._contract import Verb

if TYPE_CHECKING:
    from foreword.text.tokenizer import Tokenizer

SAMPLE = 24  # pieces shown


class TokenizerVerb(Verb[Output], ABC):
    """A command of `foreword tokenizer`."""


def facts_of(tokenizer: Tokenizer) -> dict[str, Any]:
    """Return what there is to say of a tokenizer, as plain values."""
    vocab = tokenizer.vocab
    facts: dict[str, Any] = {
        "kind": tokenizer.kind.get("kind", "made elsewhere"),
        "vocab": vocab.size,
        "special": dict(vocab.special),
        "sentinels": len(vocab.sentinels),
        "words_begin_with": int((vocab.starts_word & ~vocab.is_special).sum()),
        "fingerprint": tokenizer.fingerprint,
    }
    if tokenizer.sample is not None:
        facts["sample"] = asdict(tokenizer.sample)
    return facts


def shown_facts(tokenizer: Tokenizer, facts: dict[str, Any]) -> Facts:
    """Return facts as people read them."""
    from foreword.text.training import describe

    lines = Facts(facts)
    lines["special"] = " ".join(f"{name} {i}" for name, i in facts["special"].items())
    lines["begin a word"] = lines.pop("words_begin_with")
    if lines.pop("sample", None):
        lines["trained on"] = describe(tokenizer)
    return lines


def some_pieces(tokenizer: Tokenizer) -> list[str]:
    """Return evenly spaced ordinary pieces, from the first to the last."""
    import numpy as np

    ordinary = np.flatnonzero(~tokenizer.vocab.is_special)
    picks = np.linspace(0, len(ordinary) - 1, min(SAMPLE, len(ordinary))).astype(int)
    return [tokenizer.token(int(i)) for i in ordinary[picks]]
