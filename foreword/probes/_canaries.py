"""Canaries: sentences with a secret that were planted in a training text, and their exposure."""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from foreword.disk import atomic
from foreword.errors import UserError
from foreword.probes._suite import CLOSENESS
from foreword.types import Array


class Canary(NamedTuple):
    """A planted sentence; its digits are the secret.

    Attributes:
        text: the sentence.
        times: how often it was planted.
    """

    text: str
    times: int


def read_canaries(file: str) -> list[Canary]:
    """Return the canaries of a file, one a line, repeated as often as it was planted.

    Raises:
        UserError: the file cannot be read, has no line, or a line has no digit.
    """
    path = Path(file).expanduser()
    try:
        lines = atomic.read_bytes(path).decode().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"probe.canaries: {file}: cannot be read: {error}") from error
    texts = [line.strip() for line in lines if line.strip()]
    if not texts:
        raise UserError(f"probe.canaries: {file}: no canary in it")
    for text in texts:
        if not re.search("[0-9]", text):
            raise UserError(
                f"probe.canaries: {file}: '{text}' has no digit; the secret of a canary are its "
                "digits, as in 'The code of the safe is 4831.'"
            )
    return [Canary(text, times) for text, times in Counter(texts).items()]


def candidates(text: str, count: int) -> list[str]:
    """Return a canary and others that differ by their digits alone, at most `count` in all.

    The canary is the first; the others are drawn by a function of the text, all if there are fewer.
    """
    positions = [match.start() for match in re.finditer("[0-9]", text)]
    digits = "".join(text[position] for position in positions)
    space = 10 ** len(positions)
    if space <= count:
        secrets = [str(n).zfill(len(positions)) for n in range(space)]
    else:
        digest = hashlib.sha256(text.encode("utf-8")).digest()
        rng = np.random.default_rng(int.from_bytes(digest[:8], "big"))
        drawn = {digits}
        while len(drawn) < count:
            drawn.add("".join(map(str, rng.integers(0, 10, len(positions)))))
        secrets = sorted(drawn)
    others = [secret for secret in secrets if secret != digits]
    return [text, *(_with_digits(text, positions, secret) for secret in others)]


def candidate_count(text: str, count: int) -> int:
    """Return how many candidates `candidates` returns: fewer than `count` with few digits."""
    return min(count, int(10 ** len(re.findall("[0-9]", text))))


def exposure(canary: Canary, count: int, nats_of: Callable[[Sequence[str]], Array]) -> float:
    """Return log2(candidates) - log2(rank of the canary among them by its loss), in bits.

    Ties, as between unknown digits, share the middle rank. A model that does not know the canary
    has an exposure of about 1.4; one that finds it the likeliest of all has log2(candidates).

    Reference: Carlini et al. 2019, section 4.2.
    """
    nats = nats_of(candidates(canary.text, count))
    is_equal = np.isclose(nats[1:], nats[0], rtol=CLOSENESS, atol=0)
    rank = 1 + int((nats[1:][~is_equal] < nats[0]).sum()) + int(is_equal.sum()) / 2
    return math.log2(len(nats)) - math.log2(rank)


def _with_digits(text: str, places: Sequence[int], digits: str) -> str:
    characters = list(text)
    for place, digit in zip(places, digits, strict=True):
        characters[place] = digit
    return "".join(characters)
