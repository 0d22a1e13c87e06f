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
from foreword.errors import DamagedError, UserError
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


def write_recipe(run: Path, recipe: Recipe) -> None:
    """Write a run's recipe, after adding its checksum to `run.json`.

    Checksums of earlier recipes stay: a kill between the two writes leaves the earlier recipe.

    Raises:
        UserError: the folder cannot be written.
    """
    text = recipe.dumps()
    provenance = read_state(run)
    digest = atomic.digest(text)
    checksums = provenance.get("recipes", [])
    if digest not in checksums:
        write_state(run, {**provenance, "recipes": [*checksums, digest]})
    atomic.write_text(run / RECIPE, text)


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
                f"'foreword resume {run}' continues once the file is back"
            )


def require_as_written(run: Path) -> None:
    """Check that a run has this format and that its recipe is as it was written.

    Raises:
        UserError: the run is of another format.
        DamagedError: the recipe was changed, or `run.json` cannot be read.
    """
    if not (run / FILE).exists():
        return
    state = read_state(run)
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


def require_plugins(run: Path) -> None:
    """Check that the plug-in kinds that a run uses are available.

    Raises:
        UserError: one is missing; the message says how to give it.
    """
    if (run / FILE).exists():
        plugins.require_noted(read_state(run).get("plugins", []), run)


def command() -> str:
    """Return the command line, quoted for a shell."""
    return shlex.join(["foreword", *sys.argv[1:]])


def note_data(
    run: Path, prepared: PreparedText, model: Model, device: torch.device, precision: str
) -> None:
    """Add the data that a run reads and its device to `run.json`."""
    provenance = read_state(run)
    provenance["data"] = {
        "shards": str(prepared.folder),
        "fingerprint": prepared.fingerprint,
        "read": prepared.manifest["read"],
        "counts": prepared.manifest["counts"],
        **({"sources": prepared.manifest["sources"]} if prepared.sources else {}),
    }
    provenance["parameters"] = model.count_parameters()
    provenance["computed_on"] = describe(device)
    provenance["precision"] = precision
    write_state(run, provenance)


def note_sources(run: Path, sources: Mapping[str, tuple[float, float]]) -> None:
    """Add the share and the epochs of each source of a mixture to `run.json`."""
    provenance = read_state(run)
    for name, (share, epochs) in sources.items():
        provenance["data"]["sources"][name] |= {"share": share, "epochs": epochs}
    write_state(run, provenance)


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
