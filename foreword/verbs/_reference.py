"""The arguments of every verb, for `foreword show VERB` and the end of docs/commands.md.

python -m foreword.verbs._reference docs/commands.md      writes them anew
"""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import Any

from foreword.disk import stored
from foreword.settings import describe, kinds
from foreword.verbs._contract import SET, Verb, VerbArgument, arguments_of

HEADING = "\n## The arguments of each verb\n"
ABOUT = """
Written by `python -m foreword.verbs._reference docs/commands.md`; `foreword show verbs/VERB` shows
the same.
"""


def argument_rows(verb: type[Verb[Any]]) -> list[dict[str, str]]:
    """Return the arguments of a verb with their defaults, possible values and meanings."""
    in_words = {setting.name: setting.values for setting in describe.settings(verb)}
    return [
        {
            "argument": _named(argument),
            "default": _default(argument),
            "values": _values(argument, in_words[argument.name]),
            "meaning": argument.meaning,
        }
        for argument in arguments_of(verb)
    ]


def _named(argument: VerbArgument) -> str:
    """Return what an argument is called: `--top-k`, `RUN...`, `--set (Python: settings)`."""
    if argument.words is None:
        return f"{argument.name} (Python only)"
    names = argument.mark.names or (argument.flag,)
    shown = _position(argument) if argument.mark.is_argument else ", ".join(names)
    own = argument.flag.removeprefix("--").replace("-", "_").lower()
    return shown if own == argument.name.strip("_") else f"{shown} (Python: {argument.name})"


def _position(argument: VerbArgument) -> str:
    return argument.mark.metavar or argument.flag


def _values(argument: VerbArgument, in_words: str) -> str:
    if argument.words is bool:
        return ""  # the option alone
    if argument.mark is SET:
        return "NAME=VALUE"
    return ("path" if argument.words is str else "paths") if argument.is_path else in_words


def _default(argument: VerbArgument) -> str:
    value = argument.default
    if argument.mark.is_required or value is inspect.Parameter.empty:
        return "required"
    if value is None or value is False or value in ("", ()):
        return "–"
    return value if isinstance(value, str) else stored.to_json(value)


def reference() -> str:
    """Return the section of docs/commands.md, from its heading to its end."""
    lines = [HEADING, ABOUT]
    for folder in [name for name in kinds.folders() if name.split("/")[0] == "verbs"]:
        for name in kinds.names(folder):
            verb = kinds.load(folder, name)
            words = ["foreword", *folder.split("/")[1:], name.replace("_", "-")]
            words += [_position(a) for a in arguments_of(verb) if a.mark.is_argument]
            lines += [f"\n### `{' '.join(words)}`\n\n", describe.first_line(folder, name), "\n\n"]
            rows = argument_rows(verb)
            lines.append("| " + " | ".join(rows[0]) + " |\n" + "|---" * len(rows[0]) + "|\n")
            for row in rows:
                cells = [cell.replace("|", "\\|").replace("<", "&lt;") for cell in row.values()]
                lines.append(f"| {' | '.join(cells)} |\n")
    return "".join(lines)


if __name__ == "__main__":
    page = Path(sys.argv[1])
    text = page.read_text(encoding="utf-8").partition(HEADING)[0]
    page.write_text(text + reference(), encoding="utf-8")
