"""`foreword check --gpus`: a plan for GPUs, without text."""

from __future__ import annotations

import pytest

from foreword.cli.main import run
from tests.cli.conftest import Told

TINY = ["gpt2_tiny", "--set", "tokenizer.vocab=400", "--set", "model.layers=1"]


def test_a_plan_is_shown_and_is_data(capsys: pytest.CaptureFixture[str], told: Told) -> None:
    words = [
        "check",
        *TINY,
        "--gpus",
        "8",
        "--gpu",
        "h100,per_node=4",
        "--price",
        "2",
        "--tokens",
        "1e9",
    ]
    assert run(words) == 0
    shown = capsys.readouterr().out
    for part in (
        "gpt2_tiny on 8 x h100,per_node=4, 80 GB each",
        "hsdp",
        "weights",
        "checkpoint",
        "in the memory of a node",
        "dollars",
        "H100 datasheet",
    ):
        assert part in shown
    assert max(map(len, shown.partition("best ")[0].splitlines())) <= 80
    best = shown.partition("best ")[2].splitlines()[0].split()
    made = told(*words, *best)
    assert made["best"]["fits"]
    memory = made["best"]["memory"]
    assert memory.pop("total") == sum(memory.values())
    assert made["steps"] * made["tokens_per_step"] == pytest.approx(1e9, rel=0.01)
    assert made["gpu"]["memory_gb"] == 80


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--gpus", "4", "--data", "books"], "--data: cannot be combined with --gpus or --gpu"),
        (["--gpus", "4", "--privacy"], "--privacy: cannot be combined"),
        (["--gpus", "4", "--epochs", "2"], "give --tokens"),
        (["--price", "3"], "--price: requires --gpus or --gpu"),
    ],
)
def test_what_makes_no_plan_is_refused(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["check", *TINY, *words]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.count("\n") == 1


def test_a_plan_without_room_gives_no_time(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["check", *TINY, "--gpus", "2", "--price", "2", "--gpu", "memory_gb=1,bf16_tflops=9"]
    assert run(words) == 0
    shown = capsys.readouterr().out
    assert "none of these; " in shown
    assert "on no number of them" in shown
    assert "dollars" not in shown


def test_what_has_no_steps_here_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", "ngram_tiny", "--gpus", "4"]) == 2
    assert run(["check", "encoder", "--gpus", "4"]) == 2
    assert capsys.readouterr().err.count("\n") == 2
