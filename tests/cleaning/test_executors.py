"""Tasks that run elsewhere end as on this machine; on Ray in `tests/test_cluster.py`."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("datatrove")
pytest.importorskip("py3langid")

import foreword
from foreword import config
from foreword.cleaning.executors._contract import Executor, TasksFailedError
from foreword.cleaning.recipe import CleaningRecipe
from foreword.cleaning.run import clean
from foreword.errors import UserError
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


def test_a_mistake_that_a_task_found_elsewhere_is_named(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('{"text": "one"}\nno JSON\n')
    recipe = replace(RECIPE, clean=replace(RECIPE.clean, executor=Elsewhere()))
    with pytest.raises(UserError, match=r"a\.jsonl:2: not JSON"):
        clean([file], tmp_path / "out", recipe, lambda name: lambda *_: None)
    file.write_text('{"text": "one"}\n')
    with pytest.raises(UserError, match="1 of 1 tasks failed"):
        clean([file], tmp_path / "other", recipe, lambda name: lambda *_: None)


def test_slurm_requires_its_commands(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    file = write(tmp_path / "a.jsonl", [prose(1)])
    settings = ["clean.executor.kind=slurm"]
    with pytest.raises(UserError, match="slurm requires the command sbatch"):
        foreword.clean(file, tmp_path / "o", recipe=RECIPE, settings=settings, progress=False)
