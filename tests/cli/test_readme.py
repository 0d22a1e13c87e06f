"""What README and documents name exists: commands, recipes and settings, functions, files."""

from __future__ import annotations

import ast
import functools
import inspect
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

import foreword
from foreword.cli.main import assemble, verbs
from foreword.errors import UserError
from foreword.runs.recipe import load_recipe
from foreword.settings import config

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    *sorted(
        page for page in (ROOT / "docs").rglob("*.md") if not {"_build", "results"} & {*page.parts}
    ),
]
CHAPTERS = [page.stem for page in PAGES if page.parent.name == "book"]
DIALS = ("encoder", "decoder", "encoder_decoder", "lstm")


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
    command: Any = _command(words[0])
    context = None
    while hasattr(command, "resolve_command"):
        name, subcommand, rest = command.resolve_command(None, words)
        command, words = subcommand, rest
        context = name
    if "--help" not in words:
        command.make_context(context, list(words))


@functools.cache
def _command(verb: str) -> Any:
    return typer.main.get_command(assemble(verb))


def require_names(words: list[str]) -> None:
    """Checks that what a command names is shipped: a recipe with its settings, a grid, claims.

    Raises:
        UserError: it is not; or a setting of the recipe does not exist.
    """
    verb, named, *_ = [*words, "", ""]
    if named.startswith("-") or not re.fullmatch(r"[a-z0-9_.]+", named) or ".toml" in named:
        return  # a file or a placeholder of the reader's
    if verb in ("pretrain", "check") and named not in DIALS and "--plugins" not in words:
        settings = [words[at + 1] for at, word in enumerate(words) if word == "--set"]
        load_recipe(named, [one for one in settings if one.isascii() and "..." not in one])
    elif verb == "compare":
        config.GRIDS.find(named)
    elif words[:2] == ["claims", "run"]:
        for name in words[2:]:
            if name.startswith("-"):
                break
            if not name.endswith(".toml"):
                config.CLAIMS.find(name)


@pytest.mark.product(only=("README", "tutorial", *CHAPTERS))
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_of_a_page_is_valid(page: Path) -> None:
    lines = commands(page.read_text(encoding="utf-8"))
    assert lines or page.name != "README.md"
    wrong = []
    for words in lines:
        try:
            parse(words)
            require_names(words)
        except Exception as error:
            wrong.append(f"foreword {shlex.join(words)}: {error}")
    assert not wrong, "\n".join(wrong)


def wrong_calls(source: str) -> list[str]:
    """Return what a piece of Python calls of `foreword` that does not exist, or with what."""
    wrong = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        if not re.fullmatch(r"foreword(\.\w+)+", ast.unparse(node.func)):
            continue
        value: Any = foreword
        for name in ast.unparse(node.func).split(".")[1:]:
            value = getattr(value, name, None)
        if value is None:
            wrong.append(f"no {ast.unparse(node.func)}")
        elif inspect.isfunction(value):
            given = {one.arg for one in node.keywords if one.arg}
            unknown = given - set(inspect.signature(value).parameters)
            wrong += [f"{ast.unparse(node.func)} has no argument {name}" for name in unknown]
    return wrong


def test_python_in_pages_calls_what_exists() -> None:
    found = 0
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for block in re.findall(r"^```python\n(.*?)^```", text, re.M | re.S):
            assert not wrong_calls(block), page
            found += 1
    assert found > 3
    assert wrong_calls("foreword.pretrian()\nforeword.pretrain('a', dta=1)") == [
        "no foreword.pretrian",
        "foreword.pretrain has no argument dta",
    ]


def test_links_in_pages_lead_to_files() -> None:
    pages = [*PAGES, ROOT / "CHANGELOG.md", *sorted((ROOT / "docs" / "results").glob("*.md"))]
    missing = []
    for page in pages:
        text = re.sub(
            r"^```(?:sh|text|toml|python).*?^```", "", page.read_text("utf-8"), flags=re.M | re.S
        )
        for link in re.findall(r"\]\(([^)\s]+)\)", text):
            file = page.parent / link.partition("#")[0]
            if "://" not in link and not file.exists():
                missing.append(f"{page.name}: {link}")
    assert not missing, "\n".join(missing)


@pytest.mark.parametrize(
    "line",
    [
        "pretrain bert_tinny --data x",
        "pretrain bert_tiny --set model.layrs=3",
        "compare objektives",
        "claims run lstm_beats_rnns --data x",
    ],
)
def test_a_name_that_is_not_shipped_is_refused(line: str) -> None:
    with pytest.raises(UserError):
        require_names(shlex.split(line))


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
