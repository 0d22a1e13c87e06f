"""The content of a run folder for a report; unreadable files of a killed run are tolerated."""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from foreword.disk import atomic, stored
from foreword.errors import DamagedError, UserError
from foreword.train import log

Record = Mapping[str, Any]


RECORDS = ("train", "heldout", "probes", log.STAGE)  # kinds of records of numbers
PNG = b"\x89PNG\r\n\x1a\n"


@dataclass(frozen=True)
class Picture:
    """A plot that belongs to an evaluation.

    Attributes:
        label: name among the plots of the evaluation, such as `line 3`; "" for `NAME.png` itself.
        png: content of the file.
    """

    label: str
    png: bytes


@dataclass(frozen=True)
class SavedEvaluation:
    """A file of `evaluations/`: a named table.

    Attributes:
        title: heading for people; "" to use the name.
        rows: flat records; their keys are the columns.
        notes: remarks on the figures, a line each.
        pictures: plots named after the file: `NAME.png`, `NAME-line-3.png`.
        content: the whole content of the file.
    """

    name: str
    title: str
    task: str
    command: str
    rows: tuple[Record, ...]
    notes: tuple[str, ...] = ()
    pictures: tuple[Picture, ...] = ()
    content: Record = field(default_factory=dict)


@dataclass(frozen=True)
class RunFolder:
    """The content of a run folder.

    Attributes:
        recipe: the recipe as a table.
        provenance: content of `run.json`.
        train: records of training, in order.
        heldout: records of the held-out loss, in order.
        probes: records of the probes measured while training, in order.
        stages: records of what changed while it trained, in order.
        samples: records of samples, in order.
        evaluations: the evaluations, sorted by file name.
        of_tuned: evaluations of models tuned from the run, in `tuned/NAME/evaluations`.
        unread: what could not be read, a line each, for the page.
    """

    path: Path
    recipe: Record
    recipe_text: str
    provenance: Record
    train: tuple[Record, ...]
    heldout: tuple[Record, ...]
    probes: tuple[Record, ...]
    stages: tuple[Record, ...]
    samples: tuple[Record, ...]
    evaluations: tuple[SavedEvaluation, ...]
    of_tuned: tuple[SavedEvaluation, ...]
    unread: tuple[str, ...]


def read(run: str | Path) -> RunFolder:
    """Read a run folder, leaving out what cannot be read.

    Raises:
        UserError: it is not a run folder, or its recipe cannot be read.
    """
    run = Path(run)
    if not (run / "recipe.toml").is_file():
        reason = "not a run folder (no recipe.toml)" if run.exists() else "no such folder"
        raise UserError(f"{run}: {reason}; a report needs a run")
    # The recipe, which must match the checksum that the run noted.
    try:
        recipe_text = (run / "recipe.toml").read_text(encoding="utf-8")
        recipe = tomllib.loads(recipe_text)
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{run / 'recipe.toml'}: cannot be read: {error}") from error
    unread: list[str] = []
    provenance = _object(run / "run.json", unread) or {}
    recipes = provenance.get("recipes")
    if isinstance(recipes, list) and atomic.checksum(run / "recipe.toml") not in recipes:
        path = run / "recipe.toml"
        raise DamagedError(f"{path}: does not match its checksum: damaged, or edited")
    # The records by kind, and the evaluations.
    records = _metrics(run / "metrics.jsonl", unread)
    kinds = {kind: [r for r in records if r.get("kind") == kind] for kind in RECORDS}
    samples = [r for r in records if r.get("kind") == "samples" and _only_dicts(r.get("samples"))]
    return RunFolder(
        path=run,
        recipe=recipe,
        recipe_text=recipe_text,
        provenance=provenance,
        train=tuple(kinds["train"]),
        heldout=tuple(kinds["heldout"]),
        probes=tuple(kinds["probes"]),
        stages=tuple(kinds[log.STAGE]),
        samples=tuple(samples),
        evaluations=tuple(_evaluations(run / "evaluations", unread)),
        of_tuned=tuple(_of_tuned(run, "", unread)),
        unread=tuple(unread),
    )


def number(record: Record, key: str) -> float:
    """Return a number of a record; nan if it has none or it is not finite."""
    value = record.get(key)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    try:
        as_float = float(value) if is_number and value is not None else math.nan
    except OverflowError:  # in a damaged file
        return math.nan
    return as_float if math.isfinite(as_float) else math.nan


def _metrics(path: Path, unread: list[str]) -> list[dict[str, Any]]:
    """Return the readable records of `metrics.jsonl`; the number of broken ones is noted."""
    if not path.is_file():
        return []
    records, broken = [], 0
    for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            record = None
        if isinstance(record, dict):
            records.append(record)
        elif line.strip():
            broken += 1
    if broken:
        unread.append(f"{broken} of {broken + len(records)} lines of {path.name}")
    return records


def _object(path: Path, unread: list[str]) -> dict[str, Any] | None:
    """Return the JSON object in a file; None if it cannot be read, which is noted."""
    try:
        return stored.read(path)
    except DamagedError:
        unread.append(path.name)
        return None


def _of_tuned(run: Path, above: str, unread: list[str]) -> Iterator[SavedEvaluation]:
    """Yield the evaluations of the models tuned from a run, and of those tuned from these."""
    for folder in sorted(path for path in (run / "tuned").glob("*") if path.is_dir()):
        name = f"{above}{folder.name}"
        for evaluation in _evaluations(folder / "evaluations", unread):
            yield replace(
                evaluation,
                title=f"From the tuned model {name}: {evaluation.title or evaluation.name}",
            )
        yield from _of_tuned(folder, f"{name}/", unread)


def _evaluations(folder: Path, unread: list[str]) -> list[SavedEvaluation]:
    """Return the evaluations of a folder with their plots; files without rows are noted."""
    evaluations = []
    paths = sorted(folder.glob("*.json"))
    pictures = _pictures(folder, [path.stem for path in paths], unread)
    for path in paths:
        value = _object(path, unread)
        if value is None:
            continue
        rows = _only_dicts(value.get("rows"))
        if not rows:
            unread.append(f"{path.name} (it has no rows)")
            continue
        notes = value.get("notes")
        evaluations.append(
            SavedEvaluation(
                name=str(value.get("name") or path.stem),
                title=str(value.get("title") or ""),
                task=str(value.get("task") or ""),
                command=str(value.get("command") or ""),
                rows=tuple(rows),
                notes=tuple(map(str, notes)) if isinstance(notes, list) else (),
                pictures=tuple(pictures[path.stem]),
                content=value,
            )
        )
    return evaluations


def _pictures(folder: Path, stems: Sequence[str], unread: list[str]) -> dict[str, list[Picture]]:
    """Return the plots of each evaluation, by the stem of its file name."""
    pictures: dict[str, list[Picture]] = {stem: [] for stem in stems}
    for path in sorted(folder.glob("*.png"), key=_natural_order):
        owners = [stem for stem in stems if path.stem == stem or path.stem.startswith(f"{stem}-")]
        if not owners:
            unread.append(f"{path.name} (it belongs to no evaluation)")
            continue
        stem = max(owners, key=len)
        data = _bytes(path)
        if not data.startswith(PNG):
            unread.append(path.name)
            continue
        pictures[stem].append(Picture(path.stem[len(stem) + 1 :].replace("-", " "), data))
    return pictures


def _natural_order(path: Path) -> list[tuple[int, str]]:
    """Return a sort key by which line 10 comes after line 9."""
    parts = re.split(r"(\d+)", path.stem)
    return [(int(part) if part.isdecimal() else -1, part) for part in parts]


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _only_dicts(value: Any) -> Sequence[dict[str, Any]]:
    return [v for v in value if isinstance(v, dict)] if isinstance(value, list) else []
