"""What `import foreword` offers."""

from __future__ import annotations

import inspect
import pydoc
import re
import subprocess
import sys

import pytest

import foreword
from foreword.cli.main import verbs


def test_the_namespace_holds_only_public_names() -> None:
    assert sorted(dir(foreword)) == sorted([*foreword.__all__, "__version__"])
    with pytest.raises(AttributeError):
        foreword.nothing  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize("name", foreword.__all__)
def test_every_name_is_documented(name: str) -> None:
    value = getattr(foreword, name)
    assert inspect.getdoc(value)
    if inspect.isfunction(value):
        assert value.__name__ == name
        described = inspect.getdoc(value) or ""
        missing = [p for p in inspect.signature(value).parameters if f"{p}: " not in described]
        assert not missing
        assert "Annotated" not in str(inspect.signature(value))


def test_help_names_every_function() -> None:
    page = pydoc.render_doc(foreword)
    assert "runs/books" in page
    for name in foreword.__all__:
        assert name in page


def test_help_names_every_verb_without_a_function() -> None:
    page = " ".join((inspect.getdoc(foreword) or "").split())
    without = page.partition("have no function yet; run them as `foreword VERB`: ")[2]
    named = set(re.findall(r"\w+", without.partition(".")[0]))
    functions = {name.strip("_") for name in foreword.__all__}
    assert {verb.replace("-", "_") for verb in verbs()} - functions <= named
    assert not named & set(foreword.__all__)


def test_importing_foreword_loads_no_torch() -> None:
    code = "import sys, foreword; foreword.UserError; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-P", "-c", code], check=False).returncode == 0
