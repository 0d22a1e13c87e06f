"""Verbs that show their progress, in a terminal, for pipes show none and hide what goes wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.terminal import Terminal
from tests.train import runs


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    """A short pretraining."""
    text, recipe = runs.write_text(tmp_path / "text"), tmp_path / "tiny.toml"
    recipe.write_text(runs.recipe("encoder").dumps())
    return ["pretrain", str(recipe), "--data", str(text), "--out", str(tmp_path / "run")]


def test_pretrain_shows_its_progress_to_the_end(words: list[str]) -> None:
    with Terminal([*words, "--steps", "6"]) as terminal:
        assert terminal.wait() == 0, terminal.text
        assert "training" in terminal.printed
        assert "fault" not in terminal.text
        assert f"done: {words[-1]}" in terminal.text


def test_a_run_that_ctrl_c_stopped_is_resumed(words: list[str]) -> None:
    with Terminal([*words, "--steps", "100000"], columns=200) as terminal:
        terminal.shows("matmul speed  lr")
        terminal.press_ctrl_c()
        assert terminal.wait() == 130, terminal.text
        assert "stopped and saved" in terminal.text
    with Terminal(["resume", words[-1]], columns=200) as terminal:
        terminal.shows("carrying on from step")
        terminal.shows("matmul speed  lr")
        terminal.press_ctrl_c()
        assert terminal.wait() == 130, terminal.text
