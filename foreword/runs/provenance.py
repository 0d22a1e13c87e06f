"""The provenance of a run: software, machine, time and command."""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from foreword.data.prepared_text import PreparedText
from foreword.disk import atomic, stored
from foreword.errors import DamagedError, UserError, quoted_command
from foreword.nn.model import Model
from foreword.runs.recipe import Recipe
from foreword.settings import config, plugins
from foreword.train.device import describe
from foreword.version import __version__

FILE, RECIPE = "run.json", "recipe.toml"
FORMAT = 4  # of run folders: the names of settings, files and weights
READ = (3, FORMAT)  # 3: some settings had other names, see `config.in_todays_names`


def make_provenance(recipe: Recipe | None = None) -> dict[str, Any]:
    """Return the first fields of `run.json`; with a recipe, also the plug-ins that it uses."""
    used = plugins.used_by(recipe)
    return {
        "foreword": __version__,
        "format": FORMAT,
        "commit": _commit(),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "command": command(),
        **({"plugins": used} if used else {}),
    }


@dataclass(frozen=True)
class PluginNote:
    """A plug-in that a run was made with, as `plugins.used_by` returns it."""

    folder: str
    kinds: tuple[str, ...]
    checksums: dict[Any, Any]
    package: str | None = None


@dataclass(frozen=True)
class _Known:
    """The fields of `run.json` that commands read, with their types."""

    texts: tuple[str, ...] = ()
    tokenizer: str | None = None
    heldout: tuple[str, ...] = ()
    probes: tuple[dict[Any, Any], ...] = ()
    parameters: int = 0
    overrides: tuple[dict[Any, Any], ...] = ()
    data: dict[Any, Any] | None = None
    imported: dict[Any, Any] | None = None
    recipes: tuple[str, ...] = ()
    plugins: tuple[PluginNote, ...] = ()


def read_state(run: Path) -> dict[str, Any]:
    """Return the contents of a run's `run.json`.

    Raises:
        DamagedError: it is missing, or not as it was written.
    """
    file = run / FILE
    state = stored.read(file)
    fields = _Known.__dataclass_fields__
    try:
        config.build(_Known, {key: value for key, value in state.items() if key in fields})
        for key, names in (("data", ("fingerprint",)), ("imported", ("format", "folder"))):
            for name in names:
                if not isinstance((state.get(key) or {}).get(name, ""), str):
                    raise UserError(f"{key}.{name}: expected a string")
    except UserError as error:
        raise DamagedError(f"{file}: damaged: {error}") from error
    return state


def write_state(run: Path, state: Mapping[str, Any]) -> None:
    """Write the run's `run.json`.

    Raises:
        UserError: the folder cannot be written.
    """
    stored.write(run / FILE, state)


def write_files(run: Path, state: Mapping[str, Any], recipe: Recipe) -> dict[str, Any]:
    """Write a run's `run.json` with the recipe's checksum, and then the recipe.

    Checksums of earlier recipes stay: a kill between the two writes leaves the earlier recipe.

    Returns:
        What `run.json` holds.

    Raises:
        UserError: the folder cannot be written.
    """
    text = recipe.dumps()
    digest = atomic.digest(text)
    checksums = [one for one in state.get("recipes", []) if one != digest]
    written = {**state, "recipes": [*checksums, digest]}
    write_state(run, written)
    atomic.write_text(run / RECIPE, text)
    return written


def require_own_files(run: Path) -> None:
    """Check that a run in training still has its recipe and `run.json`.

    Raises:
        UserError: one of them, or the run, was removed.
    """
    atomic.require_not_removed(run)
    for name in (FILE, RECIPE):
        if not (run / name).is_file():
            raise UserError(
                f"{run / name}: was removed while the run trained; its checkpoints are whole, and "
                f"{quoted_command('resume', run)} continues once the file is back"
            )


def require_as_written(run: Path, state: Mapping[str, Any]) -> None:
    """Check that a run has this format, its recipe as it was written, and its plug-ins.

    Args:
        run: the run folder.
        state: its `run.json`.

    Raises:
        UserError: the run is of another format, or a kind of a plug-in is missing.
        DamagedError: the recipe was changed.
    """
    if "foreword" in state and (version := state.get("format", 1)) not in READ:
        raise UserError(
            f"{run}: a run folder of format {version}; this Foreword reads formats 3 and {FORMAT}: "
            "train anew, or use the Foreword that made it"
        )
    checksums = state.get("recipes")
    if checksums is not None and atomic.checksum(run / RECIPE) not in checksums:
        raise DamagedError(
            f"{run / RECIPE}: does not match its checksum in {FILE}: damaged or edited; only "
            "'foreword resume --set' may change a run; otherwise start a new one"
        )
    plugins.require_noted(state.get("plugins", []), run)


def command() -> str:
    """Return the command line, quoted for a shell."""
    return shlex.join(["foreword", *sys.argv[1:]])


def set_up(
    prepared: PreparedText,
    model: Model,
    device: torch.device,
    precision: str,
    sources: Mapping[str, Mapping[str, float]] | None = None,
) -> dict[str, Any]:
    """Return what `run.json` says of a training: its text, its size and its device.

    `data.text_blake2b` identifies the source text, whatever its files, its tokenizer and its split:
    the BLAKE2b hash, of 16 bytes, of all documents as they were read, in UTF-8 and in order, each
    followed by a zero byte. It is null of a mixture, whose sources have theirs, and of shards made
    before there was one or elsewhere.

    Args:
        prepared: the text.
        model: the model.
        device: it is computed on.
        precision: it is computed in.
        sources: the share and the epochs of each source of a mixture.
    """
    data = {
        "shards": str(prepared.folder),
        "fingerprint": prepared.fingerprint,
        "text_blake2b": prepared.manifest.get("text_blake2b"),
        "read": prepared.manifest["read"],
        "counts": prepared.manifest["counts"],
    }
    if sources:
        noted = prepared.manifest["sources"]
        data["sources"] = {name: {**noted[name], **sources.get(name, {})} for name in noted}
    return {
        "data": data,
        "parameters": model.count_parameters(),
        "computed_on": describe(device),
        "precision": precision,
    }


def machine() -> dict[str, Any]:
    """Return a description of the machine without its name or address."""
    facts: dict[str, Any] = {
        "system": platform.system(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }
    if torch.cuda.is_available():
        facts["gpu"] = torch.cuda.get_device_name()
    return facts


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _commit() -> str | None:
    """Return the commit of Foreword's own source if it runs from a checkout."""
    git = shutil.which("git")
    root = Path(__file__).parents[2]
    if git is None or not (root / ".git").exists():
        return None
    done = subprocess.run(
        [git, "-C", str(root), "rev-parse", "--short", "HEAD"], capture_output=True, text=True
    )
    return done.stdout.strip() or None
