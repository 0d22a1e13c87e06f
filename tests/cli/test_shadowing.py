"""Python files in the current folder, such as `numpy.py`, are never run."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.demonstration.packages import make

DEPENDENCIES = {
    "click",
    "foreword",
    "gensim",
    "matplotlib",
    "numpy",
    "packaging",
    "pyarrow",
    "regex",
    "rich",
    "sacrebleu",
    "safetensors",
    "scipy",
    "sklearn",
    "threadpoolctl",
    "tokenizers",
    "torch",
    "tqdm",
    "transformers",
    "typer",
}
ROOT = str(Path(__file__).parents[2])
SCRIPT = """
import sys
from foreword.cli.main import main
sys.exit(main())
"""
READ_PACKAGES = """
import sys
from pathlib import Path
from foreword.cli import main
from foreword.demonstration import reading
from tests.demonstration.packages import make
if __name__ == "__main__":
    reading.FEW = 0
    print(reading.read(make(Path(sys.argv[1])), 10**9).files)
"""


class Hostile:
    """A folder where every module leaves a mark as it is imported."""

    def __init__(self, folder: Path, names: set[str]) -> None:
        self.folder, self.mark = folder / "here", folder / "mark"
        self.folder.mkdir()
        for name in names:
            hit = f"open({str(self.mark)!r}, 'a').write({name + ' '!r})\n"
            (self.folder / f"{name}.py").write_text(hit)
        lines = [json.dumps({"text": f"The cat saw house number {n}. " * 500}) for n in range(300)]
        (self.folder / "text.jsonl").write_text("\n".join(lines))  # enough for worker processes

    def run(self, *words: str, path: str = ROOT) -> str:
        """The output of a program that starts in the folder."""
        environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
        environment.pop("PYTHONSAFEPATH", None)
        done = subprocess.run(
            [sys.executable, *words],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert not self.mark.exists(), self.mark.read_text()
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def everywhere(tmp_path_factory: pytest.TempPathFactory) -> Hostile:
    """A folder with a module for each dependency and standard module."""
    return Hostile(tmp_path_factory.mktemp("all"), {*DEPENDENCIES, *sys.stdlib_module_names})


def script(tmp_path: Path, text: str) -> str:
    """A program in a folder of its own, as an installed command is."""
    path = tmp_path / "program.py"
    path.write_text(text)
    return str(path)


@pytest.mark.full
def test_workers_and_training_run_nothing_of_the_current_folder(
    everywhere: Hostile, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    words = ["pretrain", "gpt2_tiny", "--data", "text.jsonl", "--out", str(run), "--steps", "1"]
    for option in ("train.compile=off", "tokenizer.kind=char", "packing.length=16"):
        words += ["--set", option]
    everywhere.run(script(tmp_path, SCRIPT), *words, "--set", "prepare.workers=2")
    assert (run / "checkpoints" / "step-00000001" / "weights.safetensors").is_file()


@pytest.mark.full
def test_processes_that_python_starts_run_nothing_of_the_current_folder(
    everywhere: Hostile, tmp_path: Path
) -> None:
    packages = make(tmp_path / "count")
    output = everywhere.run(script(tmp_path, READ_PACKAGES), str(tmp_path / "packages"))
    assert int(output) == sum(len(package.files) for package in packages)


def not_imported_by_python() -> set[str]:
    """Return all modules except those that Python imports before any code of ours.

    On its way it also tries modules of other systems, such as `nt`.
    """
    code = "import importlib.util, runpy, sys; print(*sys.modules)"
    run = [sys.executable, "-P", "-c", code]
    before = set(subprocess.check_output(run, text=True).split()) | {"foreword"}
    here = {name for name in sys.stdlib_module_names if importlib.util.find_spec(name) is not None}
    return {*DEPENDENCIES, *here} - before


def test_python_m_foreword_runs_nothing_of_the_current_folder(tmp_path: Path) -> None:
    hostile = Hostile(tmp_path, not_imported_by_python())
    assert "Usage" in hostile.run("-m", "foreword", "tokenizer", "--help")


@pytest.mark.full
def test_an_empty_part_of_pythonpath_runs_nothing_of_the_current_folder(tmp_path: Path) -> None:
    hostile = Hostile(tmp_path, not_imported_by_python())
    program = script(tmp_path, "from foreword.__main__ import main\nmain()\n")
    path = os.pathsep.join(["", ROOT, ""])
    assert "Usage" in hostile.run(program, "tokenizer", "--help", path=path)
