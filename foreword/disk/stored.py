"""JSON files that Foreword writes and reads again, each with a checksum.

Reading returns the object that was written, or raises an error that names the damage in one line.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from foreword.disk import atomic
from foreword.disk.credentials import masked_values
from foreword.errors import DamagedError

CHECKSUM = "checksum"  # the key of the BLAKE2b hash of all other keys
DEEPEST = 100  # levels of tables and lists; what walks over them may call itself for each
_LARGEST = 1 << 63


def write(path: Path, content: Mapping[str, Any]) -> None:
    """Write an object to a file, with its checksum.

    Raises:
        UserError: the disk is full or the folder cannot be written.
    """
    atomic.write_text(path, dumps(content))


def dumps(table: Mapping[str, Any]) -> str:
    """Return the text of a file that `read` reads."""
    content = {key: value for key, value in table.items() if key != CHECKSUM}
    content = _finite(masked_values(content))
    return to_json({**content, CHECKSUM: _checksum(content)}, indent=1) + "\n"


def record(content: Any) -> str:
    """Return the text of a file that other programs read, or people."""
    return to_json(masked_values(content), indent=1) + "\n"


def to_json(value: Any, indent: int | None = None) -> str:
    """Return a value as JSON that every program reads.

    A number that is not finite becomes null, since JSON has none; half a character, as in the name
    of a file, is escaped, since UTF-8 has none.

    Args:
        value: what `json.dumps` takes.
        indent: spaces per level; None for one line.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, indent=indent, allow_nan=False)
    except ValueError:
        value = _finite(value)
        text = json.dumps(value, ensure_ascii=False, indent=indent, allow_nan=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        text = json.dumps(value, indent=indent, allow_nan=False)
    return text


def _finite(value: Any) -> Any:
    """Return the value with None for each number in it that is not finite."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def read(path: Path, *, is_foreign: bool = False) -> dict[str, Any]:
    """Return the object of a file; its checksum, if it has one, stays in it.

    A file without a checksum was written by an older Foreword or by hand: its numbers must be
    finite and of at most 64 bits. A key that occurs twice is damage, but not where it is foreign.

    Args:
        path: the file.
        is_foreign: whether other programs write such files, with any numbers.

    Raises:
        DamagedError: the file is missing, not a JSON object, or not what was written.
    """
    is_out_of_range = False

    def number(text: str) -> float:
        nonlocal is_out_of_range
        value = float(text)
        is_out_of_range |= not math.isfinite(value)
        return value

    def whole_number(text: str) -> int:
        nonlocal is_out_of_range
        value = int(text)
        is_out_of_range |= abs(value) >= _LARGEST
        return value

    # Parse the file.
    try:
        table = json.loads(
            atomic.read_bytes(path).decode(),
            object_pairs_hook=dict if is_foreign else _without_duplicates,
            parse_float=number,
            parse_int=whole_number,
            parse_constant=number,
        )
    except OSError as error:
        raise DamagedError(f"{path}: cannot be read: {error.strerror}") from error
    except RecursionError as error:
        raise DamagedError(f"{path}: nested too deeply") from error
    except ValueError as error:
        what = "not valid JSON" if is_foreign else "damaged: not the JSON that was written"
        raise DamagedError(f"{path}: {what}") from error
    if is_too_deep(table):
        raise DamagedError(f"{path}: nested too deeply")
    if not isinstance(table, dict):
        raise DamagedError(f"{path}: damaged: not a JSON object")
    # Verify its checksum, or its numbers if it has none.
    if CHECKSUM not in table:
        if is_out_of_range and not is_foreign:
            raise DamagedError(f"{path}: damaged: a number that is not finite, or too large")
    elif table[CHECKSUM] != _checksum({k: v for k, v in table.items() if k != CHECKSUM}):
        raise DamagedError(
            f"{path}: does not match its checksum: damaged, or edited; if it was edited on "
            f'purpose, delete "{CHECKSUM}" from it'
        )
    return table


def is_too_deep(value: Any) -> bool:
    """Return whether tables and lists lie more than `DEEPEST` levels within each other."""
    level = [value]
    for _ in range(DEEPEST):
        tables = [one for one in level if isinstance(one, Mapping | list)]
        level = [x for one in tables for x in (one.values() if isinstance(one, Mapping) else one)]
    return any(isinstance(one, Mapping | list) for one in level)


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object of some keys and values; a key may not occur twice."""
    table = dict(pairs)
    if len(table) < len(pairs):
        raise ValueError("a key occurs twice")
    return table


def _checksum(content: Mapping[str, Any]) -> str:
    return atomic.digest(json.dumps(content, sort_keys=True))
