"""Every `foreword` command in README and documentation is one that the command line understands."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from foreword.cli.main import assemble, verbs

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def commands(text: str) -> list[list[str]]:
    """The words after `foreword`, of each command in a block of code, fenced or indented."""
    commands = []
    blocks = r"^```\w*\n(.*?)^```|((?:^(?: {4}.*)?\n)+)"
    for block in map("".join, re.findall(blocks, text, flags=re.MULTILINE | re.DOTALL)):
        for line in block.replace("\\\n", " ").splitlines():
            line = line.strip().removeprefix("$ ")
            if line.startswith("foreword "):
                command = re.split(r"\s(?:\||&&|;|>)\s", line)[0]
                commands.append(shlex.split(command, comments=True)[1:])
    return commands


def parse(words: list[str]) -> None:
    """Parses a command as the command line would, down to the last option, and does not run it.

    Raises:
        Exception: an unknown verb, option or argument; the message says which.
    """
    if words in ([], ["--version"], ["--help"]):
        return
    assert words[0] in verbs(), f"no verb {words[0]}"
    words = [word for word in words if word != "--debug"]
    if "--plugins" in words:  # as --debug, read before the verb's own options
        at = words.index("--plugins")
        words = words[:at] + words[at + 2 :]
    command: Any = typer.main.get_command(assemble(words[0]))
    context = None
    while hasattr(command, "resolve_command"):
        name, subcommand, rest = command.resolve_command(None, words)
        command, words = subcommand, rest
        context = name
    if "--help" not in words:
        command.make_context(context, list(words))


@pytest.mark.product(only=("README", "tutorial"))
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_of_a_page_is_valid(page: Path) -> None:
    lines = commands(page.read_text(encoding="utf-8"))
    assert lines or page.name != "README.md"
    wrong = []
    for words in lines:
        try:
            parse(words)
        except Exception as error:
            wrong.append(f"foreword {shlex.join(words)}: {error}")
    assert not wrong, "\n".join(wrong)


def test_commands_are_found_in_blocks_of_shell() -> None:
    text = """
foreword is prose here
```sh
# a comment
$ foreword pretrain bert_tiny --data a.txt \\
    --out runs/x   # and why
foreword show kinds --json | head
pip install foreword
```
prose

    foreword resume runs/x      # indented

    foreword fill runs/x "The [MASK]."
"""
    assert commands(text) == [
        ["pretrain", "bert_tiny", "--data", "a.txt", "--out", "runs/x"],
        ["show", "kinds", "--json"],
        ["resume", "runs/x"],
        ["fill", "runs/x", "The [MASK]."],
    ]


@pytest.mark.parametrize(
    "line",
    [
        "pretrian bert_tiny --data x --out y",
        "pretrain bert_tiny --data x --out y --daat z",
        "pretrain --data x --out y",
        "pretrain bert_tiny --data x --out y --steps many",
        "tokenizer trian x --out y",
        "resume run and more",
    ],
)
def test_a_wrong_command_is_refused(line: str) -> None:
    with pytest.raises(Exception, match=r"."):
        parse(shlex.split(line))


@pytest.mark.parametrize(
    "line",
    [
        "pretrain bert_tiny --data a b c --out y --steps 3 --set model.layers=3 --json",
        "check bert_tiny --data x",
        "tokenizer train x --out y",
        "resume run",
    ],
)
def test_a_valid_command_is_accepted(line: str) -> None:
    parse(shlex.split(line))
