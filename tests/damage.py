"""Ways to damage a file."""

from __future__ import annotations

import json
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from foreword.disk import stored


def _swapped(value: Any, swap: Callable[[Any], Any]) -> Any:
    """A JSON value with its numbers exchanged."""
    if isinstance(value, dict):
        return {key: _swapped(item, swap) for key, item in value.items()}
    if isinstance(value, list):
        return [_swapped(item, swap) for item in value]
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return swap(value) if is_number else value


def _numbers(swap: Callable[[Any], Any]) -> Callable[[bytes], bytes]:
    """Exchange the numbers of each line or of the whole, and forget the checksum."""

    def damaged(data: bytes) -> bytes:
        try:
            parts = [json.loads(data)]
        except ValueError:
            parts = [json.loads(line) for line in data.splitlines()]
        for part in parts:
            part.pop(stored.CHECKSUM, None)
        return b"\n".join(json.dumps(_swapped(part, swap)).encode() for part in parts) + b"\n"

    return damaged


def flip(data: bytes, bit: int) -> bytes:
    """Data with one bit of it turned round."""
    place, of = divmod(bit % (8 * len(data)), 8)
    return data[:place] + bytes([data[place] ^ 1 << of]) + data[place + 1 :]


_KEY = re.compile(rb'("\w+": ?[^,{\[]+?)([,}\n])')

# Of any file; what is None is done to the file itself.
ANY: dict[str, Callable[[bytes], bytes] | None] = {
    "gone": None,
    "a folder": None,
    "emptied": lambda data: b"",
    "cut": lambda data: data[: len(data) // 2],
    "flipped": lambda data: flip(data, random.Random(len(data)).randrange(8 * max(1, len(data)))),
    "zeros": lambda data: bytes(len(data)),
}
# Of JSON.
JSON: dict[str, Callable[[bytes], bytes]] = {
    "a list": lambda data: b"[]\n",
    "nothing in it": lambda data: b"{}\n",
    "a text": lambda data: b'"text"\n',
    "numbers as texts": _numbers(str),
    "numbers as lists": _numbers(lambda number: [number]),
    "huge numbers": _numbers(lambda number: 10**400),
    "many digits": lambda data: re.sub(rb"\d+(?=[,}\s])", b"1" * 5000, data),
    "not a number": _numbers(lambda number: float("nan")),
    "endless": _numbers(lambda number: float("inf")),
    "negative": _numbers(lambda number: -7),
    "nested": lambda data: b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"\n",
    "not UTF-8": lambda data: data.replace(b'"', b'"\xe9\xff', 1),
    "wide": lambda data: data.decode().encode("utf-16"),
    "a key twice": lambda data: _KEY.sub(rb"\1, \1\2", data, count=1),
}


def kinds(file: Path) -> dict[str, Callable[[bytes], bytes] | None]:
    """The ways to damage a file."""
    return {**ANY, **JSON} if file.suffix in (".json", ".jsonl") else ANY


def damage(file: Path, kind: str) -> bool:
    """Damage a file; whether it has changed."""
    before, way = file.read_bytes(), kinds(file)[kind]
    if way is not None:
        file.write_bytes(way(before))
        return file.read_bytes() != before
    file.unlink()
    if kind == "a folder":
        file.mkdir()
    return True


def copied(folder: Path, to: Path) -> Path:
    """A copy in the place of an earlier one."""
    shutil.rmtree(to, ignore_errors=True)
    return Path(shutil.copytree(folder, to))
