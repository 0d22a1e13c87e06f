"""The page's modules and styles inside of one HTML file, which runs them and nothing else."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any

from foreword.disk import stored
from foreword.settings import kinds

FOLDER = kinds.ROOT / "serving" / "page"
IMPORT = re.compile(r'^import (?:\{([^}]*)\}|\* as (\w+)) from "(\.[^"]+)";$', re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:async )?(?:const|class|function\*?) (\w+))", re.MULTILINE)


def head(styles: Sequence[str], module: str) -> str:
    """Return what the head of a page holds: a policy, styles, and a module with all it imports.

    The policy has the hash of each, so that no other script or style counts, whatever else is in
    the page, and nothing is fetched.

    Args:
        styles: names of files of the page's folder.
        module: the name of one.
    """
    style = "".join((FOLDER / name).read_text(encoding="utf-8") for name in styles)
    code = script(module)
    policy = (
        f"default-src 'none'; script-src {_hash(code)}; style-src {_hash(style)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    return (
        f'<meta http-equiv="content-security-policy" content="{policy}">\n'
        f'<style>{style}</style>\n<script type="module">{code}</script>\n'
    )


def script(module: str) -> str:
    """Return a module as a script that imports nothing: each of its modules is a function's result.

    Args:
        module: name of a file of the page's folder.
    """
    done: dict[str, str] = {}

    def add(name: str) -> None:
        text = (FOLDER / name).read_text(encoding="utf-8")

        def known(match: re.Match[str]) -> str:
            names, whole, path = match.groups()
            other = _joined(name, path)
            if other not in done:
                add(other)
            what = whole or f"{{{names.replace(' as ', ': ')}}}"
            return f'const {what} = modules["{other}"];'

        code = IMPORT.sub(known, text)
        exported = ", ".join(EXPORT.findall(code))
        inside = f"{EXPORT.sub('', code)}\nreturn {{ {exported} }};"
        done[name] = f'modules["{name}"] = (() => {{\n{inside}\n}})();\n'

    add(module)
    return "const modules = {};\n" + "".join(done.values())


def data(value: Any, attributes: str = "") -> str:
    """Return a value as data for scripts: JSON that ends no element, whatever is in it."""
    text = stored.to_json(value).replace("<", "\\u003c")
    return f'<script type="application/json"{attributes}>{text}</script>'


def _joined(name: str, path: str) -> str:
    """Return the name of a module that another names by a path relative to its own."""
    parts: list[str] = []
    for part in (PurePosixPath(name).parent / path).parts:
        if part == "..":
            parts.pop()
        else:
            parts.append(part)
    return "/".join(parts)


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"
