"""Results are found by what was asked: nothing is done twice, and nothing stale is used.

Beside each result stands a JSON file that says what it was asked to be, `{"asked": {...}}`. It is
compared as a value, not as text, so that a setting added later, with its default, changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from foreword import config, stored
from foreword.compare.grid import GridTask
from foreword.data.text_files import ReadSettings
from foreword.data.write_shards import PrepareSettings
from foreword.errors import UserError
from foreword.kinds import part
from foreword.runs.recipe import Recipe
from foreword.text.tokenizers._contract import TokenizerKind


@dataclass(frozen=True)
class TokenizerKey:
    """A tokenizer: its settings, how the files are read, and what is in them."""

    read: ReadSettings
    text: str
    tokenizer: TokenizerKind = part("text/tokenizers", "wordpiece")


@dataclass(frozen=True)
class ShardsKey:
    """Token shards: as a tokenizer's fingerprint makes them of a text's, and of the held-out's."""

    prepare: PrepareSettings
    text: str
    tokenizer: str
    heldout: str = ""


@dataclass(frozen=True)
class RunKey:
    """A run: its recipe and the fingerprint of its shards."""

    recipe: Recipe
    data: str


@dataclass(frozen=True)
class TuningKey:
    """A fine-tuning: the task, its files' checksums, and from scratch the network too."""

    task: GridTask
    files: tuple[str, ...]
    recipe: Recipe | None = None
    tokenizer: str = ""


def without_labels(recipe: Recipe) -> Recipe:
    """The recipe without what is only said of it."""
    return replace(recipe, description="", family="", paper="")


def settings_of_task(task: GridTask) -> GridTask:
    """The task without its name, its metric and the places of its files."""
    return replace(task, name="", metric="", train="", dev="", scratch=True)


def find(files: Iterable[Path], key: Any) -> Path | None:
    """The first of the JSON files that was asked for `key`."""
    for file in sorted(files):
        try:
            asked = stored.read(file)["asked"]
            if config.build(type(key), asked) == key:
                return file
        except (KeyError, AttributeError, UserError):
            continue  # of another kind, damaged, or of a Foreword that knew other settings
    return None


def store(folder: Path, name: str, key: Any, content: dict[str, Any] | None = None) -> Path:
    """Writes what was asked, and perhaps more, to a JSON file of a free name like `name`.

    The folder belongs to one process at a time (`atomic.alone`), or two would take the same name.
    """
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "unnamed"
    for number in range(1, 1_000_000):
        file = folder / (f"{slug}.json" if number == 1 else f"{slug}-{number}.json")
        if not file.exists() and not file.with_suffix("").exists():
            break
    document = {**(content or {}), "asked": config.to_table(key)}
    stored.write(file, document)
    return file
