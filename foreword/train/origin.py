"""Where a run came from: the software, the machine, the moment, the command."""

from __future__ import annotations

import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

import foreword
from foreword import atomic
from foreword.data.prepared import Prepared
from foreword.nn.model import Model
from foreword.train.device import describe


def origin() -> dict[str, Any]:
    """What `run.json` begins with."""
    return {
        "foreword": foreword.__version__,
        "commit": _commit(),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "command": command(),
    }


def command() -> str:
    """What was asked for, as it can be typed into a shell again."""
    return shlex.join(["foreword", *sys.argv[1:]])


def note_data(
    run: Path, prepared: Prepared, model: Model, device: torch.device, precision: str
) -> None:
    """Adds to a run's `run.json` what it reads, and what it computes on."""
    file = run / "run.json"
    provenance: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    provenance["data"] = {
        "shards": str(prepared.folder),
        "fingerprint": prepared.fingerprint,
        "read": prepared.manifest["read"],
        "counts": prepared.manifest["counts"],
    }
    provenance["parameters"] = model.count_parameters()
    provenance["computed_on"] = describe(device)
    provenance["precision"] = precision
    atomic.write_text(file, json.dumps(provenance, indent=1) + "\n")


def machine() -> dict[str, Any]:
    """The machine, without its name or address."""
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
    """The commit of Foreword's own source, where it runs from a checkout."""
    git = shutil.which("git")
    root = Path(foreword.__file__).parent.parent
    if git is None or not (root / ".git").exists():
        return None
    done = subprocess.run(
        [git, "-C", str(root), "rev-parse", "--short", "HEAD"], capture_output=True, text=True
    )
    return done.stdout.strip() or None
