"""Probes of a model in training: how they are given, stored with a run, and measured."""

from __future__ import annotations

import glob
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_args

from foreword.disk import atomic
from foreword.errors import NoFileError, UserError
from foreword.probes._contract import PATH, Probe, ProbedModel
from foreword.runs.hooks import Probing
from foreword.runs.trained_model import TrainedModel
from foreword.settings import config
from foreword.settings.kinds import Part, name_of
from foreword.settings.ranges import hints_of

LABEL = "model"


def probe_of(spec: str | Probe) -> Probe:
    """Return a probe given as an object, or as words: `minimal_pairs files=blimp/ limit=50`.

    Paths become absolute, so that a run can be resumed from another folder.

    Raises:
        UserError: there is no such probe, a setting is wrong, or a file does not exist.
    """
    return with_absolute_paths(spec if not isinstance(spec, str) else _from_words(spec))


def probing(tables: Sequence[Mapping[str, Any]]) -> Probing | None:
    """Return what measures a model in training by the probes of these tables; None without any.

    Raises:
        UserError: a table is not one of a probe.
    """
    probes = [config.build_kind(Part("probes"), table, "probe") for table in tables]

    def measure(trained: TrainedModel) -> dict[str, float | None]:
        figures: dict[str, float | None] = {}
        for probe in probes:
            name, figure = _figure(probe, trained)
            number = sum(other.partition(" ")[0] == name for other in figures)
            figures[name if not number else f"{name} {number + 1}"] = figure
        return figures

    return measure if probes else None


def tables_of(specs: str | Probe | Sequence[str | Probe]) -> tuple[dict[str, Any], ...]:
    """Return probes as the tables that a run stores.

    Raises:
        UserError: as `probe_of`.
    """
    if isinstance(specs, str) or not isinstance(specs, Sequence):
        specs = [specs]
    probes = [probe_of(spec) for spec in specs]
    return tuple(config.kind_table(probe) for probe in probes)


def _from_words(text: str) -> Probe:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UserError(f"--probe {text}: {error}") from None
    if not words:
        raise UserError('--probe: expected a probe and its settings: "minimal_pairs files=PAIRS"')
    if unclear := [word for word in words[1:] if "=" not in word]:
        raise UserError(f"--probe {text}: expected settings as name=value, got {unclear[0]!r}")
    table = config.assign({"kind": words[0]}, words[1:])
    probe: Probe = config.build_kind(Part("probes"), table, "probe")
    return probe


def with_absolute_paths(probe: Probe, folder: Path | None = None) -> Probe:
    """Return the probe with its paths, relative to a folder or the current one, made absolute.

    Raises:
        UserError: there is no such file or folder.
    """
    absolute = {}
    for name, path in _paths(probe).items():
        whole = str(((folder or Path()) / Path(path).expanduser()).absolute())
        if not _matches(whole):
            raise NoFileError(f"probe.{name}: {path}: no such file or folder")
        absolute[name] = whole
    return replace(probe, **absolute)  # type: ignore[type-var]  # a dataclass


def checksums(probe: Probe) -> tuple[str, ...]:
    """Return the checksums of the files that a probe's settings name, those in folders too."""
    paths = [path for where in _paths(probe).values() for path in sorted(_matches(where))]
    files = [file for p in paths for file in (sorted(p.iterdir()) if p.is_dir() else [p])]
    return tuple(atomic.checksum(file) for file in files if file.is_file())


def _paths(probe: Probe) -> dict[str, str]:
    """Return the settings that are paths, without empty ones."""
    hints = hints_of(type(probe))
    names = [field.name for field in fields(probe)]  # type: ignore[arg-type]  # a dataclass
    paths = {name: getattr(probe, name) for name in names if PATH in get_args(hints[name])[1:]}
    return {name: path for name, path in paths.items() if path}


def _matches(path: str) -> list[Path]:
    """Return the file or folder, or those of a pattern."""
    if Path(path).exists():
        return [Path(path)]
    return list(map(Path, glob.glob(path, recursive=True)))  # noqa: PTH207


def _figure(probe: Probe, trained: TrainedModel) -> tuple[str, float | None]:
    """Return the name and the value of a probe's one figure."""
    finding = probe.measure([ProbedModel(LABEL, trained)])
    name = name_of(probe)
    if not finding.measure:
        raise UserError(f"--probe {name}: it has no single figure for a curve")
    return f"{name}_{finding.measure}", finding.scores[LABEL]
