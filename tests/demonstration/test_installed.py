from __future__ import annotations

from pathlib import Path

import pytest

from foreword.demonstration import installed
from foreword.demonstration.installed import Package, docstrings


def test_docstrings_are_read_without_running_the_module() -> None:
    source = b'''"""Module."""
raise SystemExit
class A:
    """Class."""
    def f(self):
        """Method."""
        "not this"
async def g():
    """Function."""
topics = {"if": "The if statement."}
try:
    with A() as a:
        while a:
            match a:
                case 1:
                    def g():
                        """In a case."""
except ValueError:
    def h():
        """In a handler."""
else:
    if a:
        pass
    else:
        class B:
            """In an else."""
finally:
    def i():
        """At the end."""
'''
    assert sorted(docstrings(source)) == [
        "At the end.",
        "Class.",
        "Function.",
        "In a case.",
        "In a handler.",
        "In an else.",
        "Method.",
        "Module.",
        "The if statement.",
    ]


def test_invalid_python_is_an_error() -> None:
    with pytest.raises(SyntaxError):
        docstrings(b"def (")


def test_tests_and_vendored_copies_are_left_out(tmp_path: Path) -> None:
    for name in ("a.py", "tests/b.py", "_vendor/c.py", "sub/d.py", "sub/e.txt"):
        path = tmp_path / "lib" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("", encoding="utf-8")
    package = Package.at(tmp_path / "lib", "lib")
    assert {package.key(path) for path in package.files} == {"lib/a.py", "lib/sub/d.py"}


@pytest.mark.full
def test_installed_packages_are_found() -> None:
    names = [package.name for package in installed.packages()]
    assert {"python", "numpy", "torch"} <= set(names)
    assert len(names) == len(set(names))
