"""A cache of results, keyed by the settings and data that they are made from.

So nothing is done twice, and nothing stale is used. Each result has a JSON file with its key,
`{"key": {...}}`. Keys are compared as values, not as text, so that a setting added later, with
its default, changes nothing.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from foreword.comparison.grid import GridTask
from foreword.data.text_files import ReadSettings
from foreword.data.write_shards import PrepareSettings
from foreword.disk import stored
from foreword.errors import UserError
from foreword.probes._contract import Probe
from foreword.runs.recipe import Recipe
from foreword.settings import config
from foreword.settings.kinds import part
from foreword.text.tokenizers._contract import TokenizerKind


@dataclass(frozen=True)
class TokenizerKey:
    """The key of a tokenizer: its settings, how files are read, and their fingerprint."""

    read: ReadSettings
    text: str
    tokenizer: TokenizerKind = part("text/tokenizers", "wordpiece")


@dataclass(frozen=True)
class ShardsKey:
    """The key of token shards: settings, and fingerprints of text, tokenizer and held-out text."""

    prepare: PrepareSettings
    text: str
    tokenizer: str
    heldout: str = ""


@dataclass(frozen=True)
class RunKey:
    """The key of a run: its recipe and the fingerprint of its shards."""

    recipe: Recipe
    data: str


@dataclass(frozen=True)
class TuningKey:
    """The key of a fine-tuning: the task and the checksums of its files.

    From scratch, also the network and the fingerprint of its tokenizer. The version is that of
    tuned models; keys from before it was written have 1.
    """

    task: GridTask
    files: tuple[str, ...]
    recipe: Recipe | None = None
    tokenizer: str = ""
    version: int = 1


@dataclass(frozen=True)
class ProbeKey:
    """The key of a probe of a model: the probe and the checksums of its files."""

    files: tuple[str, ...]
    probe: Probe = part("probes")


@dataclass(frozen=True)
class LossKey:
    """The key of a loss on held-out text: the fingerprint of its shards."""

    heldout_of: str


Key = TuningKey | ProbeKey | LossKey


def without_labels(recipe: Recipe) -> Recipe:
    """Return the recipe without its description, family and paper, the paths of its sources and
    its probes, which change nothing about the model."""
    sources = tuple(replace(source, path=source.name) for source in recipe.data.sources)
    data = replace(recipe.data, sources=sources)
    return replace(recipe, description="", family="", paper="", data=data, probes=())


def settings_of_task(task: GridTask) -> GridTask:
    """Return the task without its name, its metric and the paths of its files."""
    return replace(task, name="", metric="", train="", dev="", scratch=True)


def find(files: Iterable[Path], key: Any) -> Path | None:
    """Return the first of the JSON files with this key; None if there is none."""
    for file in sorted(files):
        try:
            written = file.stat()
        except OSError:
            continue  # it is gone
        if _key_in(file, type(key), written.st_mtime_ns, written.st_size) == key:  # type: ignore[arg-type]
            return file
    return None


@functools.lru_cache(10_000)
def _key_in(file: Path, kind: type[Any], changed: int, size: int) -> Any:
    """Return the key in a file that changed last at this time; None if it has none of the kind."""
    try:
        return config.build(kind, config.in_todays_names(kind, stored.read(file)["key"]))
    except (KeyError, AttributeError, UserError):
        return None  # another kind of key, a damaged file, or settings of another version


def store(folder: Path, name: str, key: Any, content: dict[str, Any] | None = None) -> Path:
    """Write a key, with the result's content if any, to a new JSON file named after `name`.

    The caller must hold the folder's lock (`atomic.locked`): two processes could choose one name.
    """
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "unnamed"
    for number in range(1, 1_000_000):
        file = folder / (f"{slug}.json" if number == 1 else f"{slug}-{number}.json")
        if not file.exists() and not file.with_suffix("").exists():
            break
    table = {**(content or {}), "key": config.to_table(key)}
    stored.write(file, table)
    return file
