"""The GPU benchmark at a tiny size without a GPU: its results are kept, whatever happens."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))


@pytest.mark.full
def test_a_hanging_part_is_ended_and_its_records_are_kept(tmp_path: Path) -> None:
    import gpu

    records, log, seen = tmp_path / "r.jsonl", tmp_path / "log", []
    code = f"""if True:
        import subprocess, sys, time
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        open({str(records)!r}, "a").write('{{"kind": "first"}}\\n{{"kind": "half')
        time.sleep(60)"""
    began = time.monotonic()
    outcome = gpu.run_part([sys.executable, "-c", code], records, log, 1.5, seen.append)
    assert outcome == "out of time"
    assert time.monotonic() - began < 10
    assert gpu.read_records(records) == [{"kind": "first"}]
    assert seen[-1] == [{"kind": "first"}]
    failing = [sys.executable, "-c", "print('why'); raise SystemExit(3)"]
    assert gpu.run_part(failing, records, log, 20, seen.append) == "failed (3)"
    assert log.read_text() == "why\n"


@pytest.mark.full
def test_the_benchmark_writes_both_files(tmp_path: Path) -> None:
    import gpu

    words = ["--device", "cpu", "--size", "tiny", "--minutes", "1", "--only", "machine"]
    gpu.main([*words, "--out", str(tmp_path / "out")])
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert results["parts"]["machine"]["outcome"] == "done"
    assert results["parts"]["machine"]["records"][0]["torch"] == torch.__version__
    page = (tmp_path / "out" / "results.md").read_text()
    assert torch.__version__ in page
    assert "Aims: 50 % of the bf16 peak" in page


def test_the_page_shows_figures_with_aims_first_and_failures() -> None:
    from gpu_page import page

    steps = [
        {"kind": "steps", "case": case, "share_of_peak": share, "tokens_per_second": 1_000_000}
        for case, share in (("slow", 0.1), ("fast", 0.52))
    ]
    counts = [{"kind": "counts", "key": 0, "outcome": f"{n} passed"} for n in (1, 2)]
    parts: dict[str, Any] = {
        "tests": {"about": "Tests", "outcome": "failed (1)", "records": counts, "log": "a | b"},
        "speed:bert_base": {"about": "Steps", "outcome": "done", "seconds": 9, "records": steps},
    }
    text = page({"parts": parts})
    assert "- speed:bert_base: 52% of the peak, 1,000,000 tokens/s (fast)" in text
    assert "- tests: failed (1)" in text
    assert "| 2 passed |" in text
    assert "| 1 passed |" not in text
    assert "a | b" in text


def run(part: str, tmp_path: Path, *arguments: Any) -> list[dict[str, Any]]:
    import gpu_parts

    records = tmp_path / "records.jsonl"
    job = gpu_parts.Job(records, torch.device("cpu"), "tiny", 5.0)
    gpu_parts.PARTS[part](job, *arguments)
    return [json.loads(line) for line in records.read_text().splitlines()]


@pytest.mark.full
@pytest.mark.parametrize("name", ["bert_base", "gpt2_small", "t5_base"])
def test_steps_are_timed_and_checked(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpu_steps.matmul_flops_per_second", lambda *_: 1e12)  # takes long
    records = run("speed", tmp_path, name)
    kinds = [record["kind"] for record in records]
    assert kinds == ["steps"] * 3 + ["check, uncompiled"] * 3  # checkpointing: none, some, all
    for record in records[:3]:
        assert record["tokens_per_second"] > 0
        assert 0 < record["share_of_products"] < 1
    assert all(record["estimated_gib"] > 0 for record in records[3:])


@pytest.mark.parametrize("name", ["bert_base", "gpt2_small", "t5_base"])
def test_every_measured_case_is_a_recipe(name: str, tmp_path: Path) -> None:
    import gpu_steps

    job = gpu_steps.Job(tmp_path / "records.jsonl", torch.device("cpu"), "tiny", 5.0)
    for case, over, _ in gpu_steps.cases(name):
        assert gpu_steps.build_setup(job, name, over, 2).recipe.train.batch == 2, case


@pytest.mark.full
def test_a_step_is_profiled(tmp_path: Path) -> None:
    records = run("profile", tmp_path, "gpt2_small")
    assert records[0]["device_busy_ms"] > 0
    groups = {record["group"]: record["ms"] for record in records if record["kind"] == "groups"}
    assert groups["matrix products"] > 0
    assert sum(groups.values()) == pytest.approx(records[0]["device_busy_ms"])


@pytest.mark.full
def test_the_loop_of_a_small_model_is_profiled(tmp_path: Path) -> None:
    records = run("host", tmp_path, "gpt2_mini")
    assert records[0]["ms"] > 0
    assert "run_backward" in records[1]["text"]  # of the functions with most time


@pytest.mark.parametrize("name", ["masked", "causal"])
def test_the_plain_loop_trains(name: str) -> None:
    import plain_pytorch

    size = {"d_model": 16, "layers": 1, "heads": 2}
    family = {"size": size, "vocab": 32, "length": 8, "batch": 2}
    cpu = torch.device("cpu")
    assert plain_pytorch.tokens_per_second(name, family, 1, 0.1, cpu, compiles=False) > 0
