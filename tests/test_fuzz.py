"""The fuzzer: cases are reproducible, and some quick ones have no findings."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

from foreword.cli.main import run
from foreword.errors import UserError
from foreword.settings import kinds
from foreword.tables.reads_rows import ReadsLabelled
from foreword.tuning.example_reader import ExampleReader, sources_of
from tests import forking

ROOT = Path(__file__).parents[1]
NO_ROWS = ("embed", "text_to_text")  # tasks of the fuzzer's rows are the others


@pytest.fixture
def recipes(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from fuzzing import recipes

    return recipes


@pytest.fixture
def place_of(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from fuzzing.case import Sandbox

    (tmp_path / "line.txt").write_text("ba be\n")
    return lambda seed: Sandbox(tmp_path, tmp_path, random.Random(f"{seed}"))


@pytest.mark.full
def test_a_mutated_recipe_is_read_or_refused_in_one_line(
    recipes: Any, place_of: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    statuses = []
    for seed in range(150):
        (command,) = recipes.read(place_of(seed))
        statuses.append(run(command.words))
        captured = capsys.readouterr()
        assert statuses[-1] in (0, 2), f"{seed}: {captured.err}"
        if statuses[-1]:
            assert re.fullmatch("foreword: .{1,1500}\n", captured.err), f"{seed}: {captured.err}"
    assert 5 < statuses.count(0) < 100  # neither all of them right nor all wrong


def test_the_command_lines_before_mutation_have_known_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from fuzzing.arguments import lines
    from fuzzing.case import Sandbox
    from fuzzing.fixtures import FAMILIES

    for name in (*FAMILIES, "translator"):
        (tmp_path / "fixtures" / name).mkdir(parents=True)
    for number, name in enumerate(lines(Sandbox(tmp_path, tmp_path, random.Random(1)))):
        folder = tmp_path / str(number)
        folder.mkdir()
        words = lines(Sandbox(folder, tmp_path / "fixtures", random.Random(1)))[name]()
        assert run([*words, "--help"]) == 0, words


def test_a_case_is_reproducible(recipes: Any, place_of: Any) -> None:
    for make in (recipes.changed, recipes.mutated, recipes.assigned):
        first, again = (make(place_of(7)) for _ in range(2))
        assert first == again


@pytest.mark.full
def test_rows_with_one_fault_are_refused_for_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from fuzzing import tables

    def learn(task: Any, path: Path) -> None:
        reader = ExampleReader(task, ReadsLabelled(bad_rows=0.001))
        source = sources_of(path, "train", task)
        task.labels(reader.read({"train": source, "dev": source})[0].train)

    tasks = {name: kinds.load("tuning/tasks", name)() for name in kinds.names("tuning/tasks")}
    for name, path in ((n, tmp_path / f"{n}.json") for n in tasks if n not in NO_ROWS):
        rows = [tables.sound(name, random.Random(seed)) for seed in range(5)]
        path.write_text(json.dumps(rows), encoding="utf-8")
        learn(tasks[name], path)
    refusals = set()
    for seed in range(500):
        task, ending, content, message = tables.fault(random.Random(seed))
        path = tmp_path / f"rows{ending}"
        path.write_bytes(content)
        with pytest.raises(UserError, match=message) as caught:
            learn(tasks[task], path)
        assert "\n" not in str(caught.value), seed
        refusals.add(message)
    assert len(refusals) > 70


def test_quick_cases_have_no_findings(tmp_path: Path) -> None:
    work, output = tmp_path / "work", tmp_path / "output"
    work.mkdir()
    words = ["--seed", "5", "--cases", "6", "--kinds", "text,--set", "--jobs", "1"]
    program = str(ROOT / "benchmarks" / "fuzz.py")
    assert forking.run(["--work", str(work), *words], output, module=program) == 0
    assert "6 cases, 0 different findings" in output.read_text()
    assert not list(work.iterdir())
