"""What is packaged: every file of data, and one version."""

from __future__ import annotations

import re
import tomllib

import yaml

from foreword.settings import kinds
from foreword.version import __version__

HOME = kinds.ROOT.parent
PROJECT = tomllib.loads((HOME / "pyproject.toml").read_text(encoding="utf-8"))
SETUPTOOLS = PROJECT["tool"]["setuptools"]


def test_package_data_has_every_file_that_is_not_code() -> None:
    code = (".py", ".pyc")
    data = {file for file in kinds.ROOT.rglob("*") if file.is_file() and file.suffix not in code}
    packaged = {
        file for one in SETUPTOOLS["package-data"]["foreword"] for file in kinds.ROOT.glob(one)
    }
    assert not [str(file) for file in data - packaged]


def test_every_pattern_of_package_data_has_files() -> None:
    for pattern in SETUPTOOLS["package-data"]["foreword"]:
        assert any(kinds.ROOT.glob(pattern)), pattern


def test_every_folder_with_code_is_a_package() -> None:
    folders = {file.parent for file in kinds.ROOT.rglob("*.py")}
    assert not [str(folder) for folder in folders if not (folder / "__init__.py").is_file()]


def test_the_source_distribution_leaves_out_what_git_ignores() -> None:
    """What is built in a folder that it takes whole, such as the site, is not packed."""
    ignored = (HOME / ".gitignore").read_text(encoding="utf-8").splitlines()
    rules = (HOME / "MANIFEST.in").read_text(encoding="utf-8").splitlines()
    folders = [line.strip("/") for line in ignored if line.strip("/").startswith("docs/")]
    assert folders
    for folder in folders:
        assert f"prune {folder.replace('**', 'scaling')}" in rules
    excluded = next(rule for rule in rules if rule.startswith("global-exclude ")).split()
    assert {line for line in ignored if line.startswith("*.") and "/" not in line} <= {*excluded}


def test_the_version_is_a_semantic_one_in_one_place_with_a_heading() -> None:
    assert "version" in PROJECT["project"]["dynamic"]
    assert SETUPTOOLS["dynamic"]["version"] == {"attr": "foreword.version.__version__"}
    match = re.fullmatch(r"(\d+\.\d+\.\d+)(\.dev\d+|(a|b|rc)\d+)?", __version__)
    assert match
    heading = f"## {match[1]} (unreleased)" if match[2] else f"## {match[1]}"
    changes = (HOME / "CHANGELOG.md").read_text(encoding="utf-8").splitlines()
    assert next(line for line in changes if line.startswith("## ")) == heading


def test_the_classifiers_name_the_pythons_that_are_allowed() -> None:
    allowed = re.fullmatch(r">=3\.(\d+),<3\.(\d+)", PROJECT["project"]["requires-python"])
    assert allowed
    first, end = map(int, allowed.groups())
    prefix = "Programming Language :: Python :: 3."
    named = [one for one in PROJECT["project"]["classifiers"] if one.startswith(prefix)]
    assert named == [f"{prefix}{minor}" for minor in range(first, end)]
    assert f"(3, {first}) <= sys.version_info[:2] < (3, {end})" in (HOME / "Makefile").read_text()


def test_the_citation_says_what_the_metadata_says() -> None:
    citation = yaml.safe_load((HOME / "CITATION.cff").read_text(encoding="utf-8"))
    project = PROJECT["project"]
    assert citation["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= citation.keys()
    assert citation["authors"] == project["authors"]
    assert citation["license"] == project["license"]
    assert citation["keywords"] == project["keywords"]
    assert citation.get("version", __version__) == __version__
