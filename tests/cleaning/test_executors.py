"""Tasks that run elsewhere end as on this machine; on Ray in `tests/test_cluster.py`.

The stand-ins of Slurm's commands do and say what the real ones did on one machine
(`benchmarks/slurm.py`).
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("datatrove")
pytest.importorskip("py3langid")

import foreword
from foreword.cleaning.executors import slurm
from foreword.cleaning.executors._contract import Executor, TasksFailedError
from foreword.cleaning.recipe import CleaningRecipe, load_cleaning
from foreword.cleaning.run import clean
from foreword.errors import UserError
from foreword.settings import config
from tests.cleaning.texts import prose, write

RECIPE = config.build(CleaningRecipe, {"clean": {"steps": ["language"]}})


@dataclass(frozen=True)
class Elsewhere(Executor):
    """Tasks whose errors only they see."""

    def run(self, blocks: list[Any], tasks: int, marks: Path) -> None:
        for rank in range(tasks):
            with suppress(UserError):
                list(blocks[0].run(None, rank, tasks))
        raise TasksFailedError(tasks, tasks, marks)


@pytest.mark.full
def test_a_mistake_that_a_task_found_elsewhere_is_named(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('{"text": "one"}\nno JSON\n')
    recipe = replace(RECIPE, clean=replace(RECIPE.clean, executor=Elsewhere()))
    with pytest.raises(UserError, match=r"a\.jsonl:2: not JSON"):
        clean([file], tmp_path / "out", recipe, lambda name: lambda *_: None)
    file.write_text('{"text": "one"}\n')
    with pytest.raises(UserError, match="1 of 1 tasks failed"):
        clean([file], tmp_path / "other", recipe, lambda name: lambda *_: None)


@pytest.mark.full
def test_worker_processes_are_silent(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path / "a.jsonl", [prose(n) for n in range(8)])
    foreword.clean(file, tmp_path / "out", recipe="copies", workers=2, progress=False)
    assert "datatrove" not in capfd.readouterr().err


def test_slurm_requires_its_commands(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    file = write(tmp_path / "a.jsonl", [prose(1)])
    settings = ["clean.executor.kind=slurm"]
    with pytest.raises(UserError, match="slurm requires the command sbatch"):
        foreword.clean(file, tmp_path / "o", recipe=RECIPE, settings=settings, progress=False)


def test_no_recipe_file_brings_code(tmp_path: Path) -> None:
    base, recipe = tmp_path / "base.toml", tmp_path / "theirs.toml"
    base.write_text("[clean.executor]\nenvironment = 'rm -rf ~'\n")
    recipe.write_text("extends = 'base.toml'\n[clean]\nsteps = ['language']\n")
    settings = ["clean.executor.kind=slurm"]
    with pytest.raises(UserError, match=r"theirs.toml: clean\.executor\.environment is shell code"):
        load_cleaning(str(recipe), settings)
    base.write_text("")
    given = load_cleaning(str(recipe), [*settings, "clean.executor.environment='module load x'"])
    assert given.clean.executor == slurm.Slurm(environment="module load x")
    for setting in ("partition", "time"):
        base.write_text(f'[clean.executor]\nkind = "slurm"\n{setting} = "a\\nrm -rf ~"\n')
        with pytest.raises(UserError, match=rf"clean\.executor\.{setting}: must be one word"):
            load_cleaning(str(recipe), settings)


SBATCH = """
for word; do case $word in --export=*) export "${word##*,}";; esac; done
last=$(sed -n 's/^#SBATCH --array=0-\\([0-9]*\\).*/\\1/p' "$word")
output=$(sed -n 's/^#SBATCH --output="\\(.*\\)"$/\\1/p' "$word")
job=$((7 + RUN_OFFSET))
for task in $(seq 0 $last); do
    log=${output/\\%A_\\%a/${job}_$task}
    export SLURM_ARRAY_TASK_ID=$task SLURM_NODELIST=here
    bash "$word" > "$log" 2>&1 && state=COMPLETED || state=FAILED
    echo "${job}_$task $state None" >> $HERE/queue
done
echo $job"""


def stand_in(folder: Path, monkeypatch: Any, **commands: str) -> Path:
    """Make commands of Slurm; return the file that lists their calls."""
    bodies = {"sbatch": SBATCH, "squeue": "cat $HERE/queue", "scancel": "", "scontrol": "echo here"}
    for name, body in (bodies | commands).items():
        command = folder / "bin" / name
        command.parent.mkdir(parents=True, exist_ok=True)
        command.write_text(f"#!/bin/bash\necho {name} $* >> $HERE/calls\n{body}\n")
        command.chmod(0o755)
    (folder / "queue").touch()
    monkeypatch.setenv("HERE", str(folder))
    monkeypatch.setenv("PATH", f"{folder / 'bin'}:/usr/bin:/bin")
    monkeypatch.setattr(slurm, "POLL", 0.05)
    monkeypatch.setattr(slurm, "LAG", 10.0)
    return folder / "calls"


@pytest.mark.full
def test_jobs_of_slurm_write_what_this_machine_writes(tmp_path: Path, monkeypatch: Any) -> None:
    calls = stand_in(tmp_path / "slurm", monkeypatch)
    monkeypatch.setattr(slurm, "MOST", 1)  # task of a job array
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "5")  # as if the command were itself in a job
    files = [write(tmp_path / f"{n}.jsonl", [prose(n)]) for n in range(2)]
    size = max(file.stat().st_size for file in files)
    settings = [f"clean.part={size}", "clean.executor.kind=slurm", "clean.executor.partition=cpu"]
    settings.append("clean.executor.environment=module list")
    texts = []
    for out, assigned in (("of slurm", settings), ("here", settings[:1])):
        cleaned = foreword.clean(
            files, tmp_path / out, recipe=RECIPE, settings=assigned, progress=False
        )
        texts.append({path.name: path.read_bytes() for path in cleaned.texts.iterdir()})
        assert load_cleaning(str(cleaned.out / "recipe.toml"))
    assert len(texts[0]) == 2
    assert texts[0] == texts[1]
    words = [line.split() for line in calls.read_text().splitlines()]
    commands = [first for first, *_ in words if first != "scontrol"]
    assert commands == ["scancel", "squeue", "sbatch", "sbatch", "squeue", "scancel"]


@pytest.mark.parametrize(
    ("commands", "queue", "expected"),
    [
        (
            {"sbatch": "echo sbatch: error: invalid partition specified: cpu >&2; exit 1"},
            "",
            "^clean.executor: sbatch refuses the jobs: invalid partition specified: cpu$",
        ),
        ({}, "7_0 PENDING PartitionTimeLimit", r"will never start job 7_0 \(PartitionTimeLimit\)"),
        (
            {"squeue": "echo no controller >&2; exit 1"},
            "",
            "^Slurm does not answer: no controller$",
        ),
        (
            {"squeue": "cat $HERE/queue | tail -n 1"},
            "7_0 TIMEOUT None",
            r"^2 of 2 tasks failed; Slurm's job 7_0 ended as TIMEOUT \(out of time\); .*/7_0.out",
        ),
    ],
)
def test_what_slurm_says_of_a_failure_is_one_line(
    commands: dict[str, str], queue: str, expected: str, tmp_path: Path, monkeypatch: Any
) -> None:
    submit = f"echo '{queue}' > $HERE/queue; echo out of time > $HERE/marks/slurm/7_0.out; echo 7"
    calls = stand_in(tmp_path, monkeypatch, **({"sbatch": submit} | commands))
    monkeypatch.setattr(slurm, "PATIENCE", 0.1)
    with pytest.raises(UserError, match=expected):
        slurm.Slurm("cpu").run([], 2, tmp_path / "marks")
    if "squeue" not in commands:
        assert calls.read_text().splitlines()[-1].startswith("scancel")


def test_a_mark_may_be_seen_after_its_job_has_ended(tmp_path: Path, monkeypatch: Any) -> None:
    mark = "(sleep 0.5; mkdir $HERE/marks/completions; touch $HERE/marks/completions/00000)"
    submit = f"echo 7_0 COMPLETED None > $HERE/queue; {mark} > /dev/null 2>&1 & echo 7"
    stand_in(tmp_path, monkeypatch, sbatch=submit)
    slurm.Slurm("cpu").run([], 1, tmp_path / "marks")
    monkeypatch.setattr(slurm, "LAG", 0.1)
    with pytest.raises(TasksFailedError, match="1 of 1 tasks failed"):
        slurm.Slurm("cpu").run([], 1, tmp_path / "others")


def test_jobs_of_a_killed_command_are_cancelled_before_others_are_submitted(
    tmp_path: Path, monkeypatch: Any
) -> None:
    ended = "echo 5_0 CANCELLED None > $HERE/queue"
    submit = "grep -q RUNNING $HERE/queue && exit 1; echo 7_0 FAILED None >> $HERE/queue; echo 7"
    stand_in(tmp_path, monkeypatch, sbatch=submit, scancel=ended)
    (tmp_path / "queue").write_text("5_0 RUNNING None\n")
    with pytest.raises(TasksFailedError, match=r"job 7_0 ended as FAILED \(no output\)"):
        slurm.Slurm("cpu").run([], 1, tmp_path / "marks")
