"""The help of the command line: verbs in groups, in the order of the work."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from typer.core import TyperGroup

# A verb without a group, such as a plug-in's, is listed under "Other".
GROUPS = {
    "Start": ("demo", "show", "plan", "check"),
    "Text": ("clean", "tokenizer", "prepare"),
    "Train": ("pretrain", "resume", "tune", "tune-suite"),
    "Use": ("app", "predict", "fill", "generate", "translate", "score", "neighbours"),
    "Measure": ("evaluate", "evaluate-tuned", "probe", "drift", "report"),
    "Compare": ("compare", "scale", "claims"),
    "Learn": ("lab",),
    "Exchange": ("import", "export", "serve"),
}
FIRST = """\
First steps:
  foreword demo                                    all stages in minutes
  foreword show recipes                            what can be trained
  foreword check encoder --data TEXT --hours 1     size, memory, time beforehand
  foreword pretrain encoder --data TEXT --out RUN --hours 1
  foreword COMMAND --help                          the options of a command
"""


def grouped(verbs: list[str]) -> dict[str, list[str]]:
    """Return the verbs by group, in the order of the work; those without one last."""
    groups = {title: [name for name in names if name in verbs] for title, names in GROUPS.items()}
    rest = [name for name in verbs if not any(name in names for names in GROUPS.values())]
    return {title: names for title, names in (groups | {"Other": rest}).items() if names}


def write_commands(
    group: TyperGroup, context: Any, formatter: Any, titles: Mapping[str, list[str]]
) -> None:
    """Write commands by title with their descriptions, wrapped and never cut."""
    for title, names in titles.items():
        commands = {name: group.get_command(context, name) for name in names}
        rows = [
            (f"{name:<10}", _first_paragraph(command.help or ""))
            for name, command in commands.items()
            if command is not None
        ]
        with formatter.section(title):
            formatter.write_dl(rows, col_max=14)


def _first_paragraph(text: str) -> str:
    """Return the first paragraph of a help text as one line."""
    return " ".join(inspect.cleandoc(text).partition("\n\n")[0].split())
