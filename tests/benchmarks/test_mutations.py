"""Mutations: drawn by a seed, found again elsewhere, and caught where a test reaches them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks import mutations

MODULE = """
class Box:
    def fits(self, size):
        if size < 3:
            return size + 1
        return 0


def unseen(size):
    return size - 1 if size else 7
"""
FILES = {
    "foreword/room/box.py": MODULE,
    "foreword/room/shelf.py": "from foreword.room.box import Box\nSHELF = Box()\n",
    "foreword/__init__.py": "",
    "tests/test_box.py": "from foreword.room.shelf import SHELF\n\n\ndef test_it():\n"
    "    assert [SHELF.fits(n) for n in range(5)] == [1, 2, 3, 0, 0]\n",
    "tests/test_other.py": "import json\n",
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_a_seed_draws_the_same_mutations_which_are_found_in_a_moved_file(
    tree: Path, tmp_path: Path
) -> None:
    drawn = [mutations.drawn(tree, seed, 2, ["room"], None, {}) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] and len(drawn[0]) == 2
    other = tmp_path / "other"
    (other / "foreword" / "moved").mkdir(parents=True)
    (other / "foreword" / "moved" / "case.py").write_text(MODULE.replace("size - 1", "size - 2"))
    places = mutations.places(
        tree / "foreword/room/box.py",
        "room/box.py:unseen",
        mutations.functions(tree / "foreword/room/box.py", tree)["room/box.py:unseen"],
    )
    found = {p.mutation.before: mutations.again(p.mutation, other, {}) for p in places}
    assert found["size - 1"] is None
    assert found["7"] is not None and found["7"].mutation.function == "moved/case.py:unseen"


@pytest.mark.full
def test_a_mutation_is_caught_by_a_test_of_a_module_that_imports_its_own(tree: Path) -> None:
    suite = mutations.Suite(tree, Path(sys.executable), "not gpu", workers="0")
    imports = mutations.Imports(tree)
    assert imports.tests(tree / "foreword/room/box.py") == ["tests/test_box.py"]
    places = mutations.drawn(tree, 3, 2, ["room"], None, {})
    outcomes = {o.mutation.function: o for o in (suite.tried(p, imports) for p in places)}
    assert outcomes["room/box.py:Box.fits"].outcome == "caught"
    assert outcomes["room/box.py:Box.fits"].test == "tests/test_box.py::test_it"
    assert outcomes["room/box.py:unseen"].outcome == "survived"
    assert (tree / "foreword/room/box.py").read_text() == MODULE
