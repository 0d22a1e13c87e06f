"""Each room of the package has a budget; raising one is a commit that names what it buys."""

from __future__ import annotations

import ast
import tomllib
from functools import cache
from typing import Any

import grimp
import pytest

from foreword.settings import kinds
from tests.test_architecture import trees

PROJECT = tomllib.loads((kinds.ROOT.parent / "pyproject.toml").read_text(encoding="utf-8"))
BUDGETS: dict[str, dict[str, int]] = PROJECT["tool"]["foreword"]["budgets"]
SPARE = 1.03  # a budget that is not used up is lowered
MOST_PARAMETERS = 7  # of a function outside of the rooms of verbs
SURFACE = ("verbs", "cli")
MANY = PROJECT["tool"]["foreword"]["many_parameters"]


@cache
def graph() -> grimp.ImportGraph:
    return grimp.build_graph("foreword", exclude_type_checking_imports=True, cache_dir=None)


def measured(room: str) -> dict[str, int]:
    """Lines, files, public functions and classes, and modules that the room imports in the end."""
    files = {file: tree for file, tree in trees() if file.parts[0] == room}
    names = [
        node.name
        for tree in files.values()
        for node in tree.body
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_")
    ]
    return {
        "lines": sum((kinds.ROOT / file).read_bytes().count(b"\n") for file in files),
        "files": len(files),
        "names": len(names),
        "reaches": len(graph().find_upstream_modules(f"foreword.{room}", as_package=True)),
    }


def test_every_room_has_a_budget() -> None:
    assert sorted(BUDGETS) == sorted(path.parent.name for path in kinds.ROOT.glob("*/__init__.py"))


@pytest.mark.parametrize("room", sorted(BUDGETS))
def test_a_room_keeps_its_budget(room: str) -> None:
    size, budget = measured(room), BUDGETS[room]
    over = {what: n for what, n in size.items() if n > budget[what]}
    assert not over, f"{room} is over its budget: {over}, at most {budget}"
    assert budget["lines"] <= SPARE * size["lines"] + 20, f"{room}: lower its budget to {size}"


def test_functions_have_few_parameters() -> None:
    """Those that have more are named in pyproject.toml: no other may join them."""
    many = {
        f"{file.as_posix()}: {node.name}"
        for file, tree in trees()
        if file.parts[0] not in SURFACE
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and parameters(node) > MOST_PARAMETERS
    }
    assert many == set(MANY)


def parameters(function: ast.FunctionDef) -> int:
    arguments = function.args
    names = [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    return len(names) - (names[:1] in (["self"], ["cls"]))


def test_contracts_are_small() -> None:
    """Those of more than twelve members are named in pyproject.toml, and may not grow."""
    allowed = PROJECT["tool"]["foreword"]["contracts"]
    sizes: dict[str, Any] = {}
    contracts = {f"{folder}/_contract.py" for folder in kinds.folders()}
    for file, tree in ((f, tree) for f, tree in trees() if f.as_posix() in contracts):
        for node in tree.body:
            bases = {b.id for b in getattr(node, "bases", []) if isinstance(b, ast.Name)}
            if isinstance(node, ast.ClassDef) and bases & {"ABC", "Protocol"}:
                members = [n for n in node.body if isinstance(n, ast.FunctionDef | ast.AnnAssign)]
                sizes[f"{file.parent.as_posix()}: {node.name}"] = len(members)
    over = {name: n for name, n in sizes.items() if n > allowed.get(name, 12)}
    assert not over, f"contracts with more than their members: {over}"
