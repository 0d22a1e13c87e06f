"""What `foreword show` lists, and its pages of kinds and settings."""

from __future__ import annotations

import re
from dataclasses import is_dataclass
from pathlib import Path

import pytest

from foreword import show
from foreword.cli.main import run
from foreword.runs.recipe import Recipe
from foreword.settings import config, describe, kinds
from foreword.tuning.settings import TuneSettings
from foreword.verbs._recipe_pages import grouped
from tests.cli.conftest import Refused, Told


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("t5_base t5_1.1_xl t5_small", "t5_{base, 1.1_xl, small}"),
        ("fixed_window_tiny fixed_window_mini_direct", "fixed_window_{tiny, mini_direct}"),
        ("transformer_xl_base transformer_xl_large", "transformer_xl_{base, large}"),
        ("modern_encoder modern_encoder_tiny", "modern_encoder; modern_encoder_tiny"),
        ("demo_encoder modernbert_tiny", "demo_encoder; modernbert_tiny"),
        ("elmo elmo_mini elmo_mini_tokens", "elmo; elmo_{mini, mini_tokens}"),
    ],
)
def test_names_with_a_common_start_are_grouped(names: str, message: str) -> None:
    assert grouped(names.split()) == message


def test_grouped_names_expand_to_all_recipes() -> None:
    names = config.RECIPES.names()
    expanded = []
    for word in grouped(names).split("; "):
        first, brace, rest = word.partition("{")
        expanded += [first + end for end in re.split(", ", rest.rstrip("}"))] if brace else [first]
    assert sorted(expanded) == sorted(names)


def test_a_kind_has_a_page_with_its_settings(told: Told) -> None:
    (page,) = told("show", "masked")
    assert page["folder"] == "objectives"
    assert "objective" in page["set_by"]
    assert "bert_mini" in page["recipes"]
    rate = page["settings"][0]
    assert rate["name"] == "rate"
    assert rate["default"] == 0.15
    assert rate["values"] == "above 0, up to 1"
    assert rate["meaning"].startswith("share of each row's")


def test_defaults_are_shown_as_they_are_written(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["show", "span_corruption"]) == 0
    cells = [line.split("\u2502") for line in capsys.readouterr().out.splitlines()]
    defaults = {row[1].strip(): row[2].strip() for row in cells if len(row) > 2}
    assert defaults.items() >= {"rate": "0.15", "mean_span": "3.0", "end": "</s>"}.items()


@pytest.mark.product(few=2)
@pytest.mark.parametrize(
    ("word", "kind"),
    [("rope", "rotary"), ("MLM", "masked"), ("Adam", "adamw"), ("nn/positions/none", "none")],
)
def test_a_kind_is_found_by_its_other_names(told: Told, word: str, kind: str) -> None:
    assert [page["name"] for page in told("show", word)] == [kind]


@pytest.mark.parametrize("word", ["objectives", "objective"])
def test_a_folder_lists_its_kinds(told: Told, word: str) -> None:
    page = told("show", word)
    assert list(page["kinds"]) == kinds.names("objectives")
    assert page["set_by"][0] == "objective"


@pytest.mark.parametrize(
    ("section", "some"),
    [("train", {"batch", "hours", "precision"}), ("tune", {"strategy", "keep", "reinit_layers"})],
)
def test_a_section_lists_its_settings(told: Told, section: str, some: set[str]) -> None:
    assert some <= {setting["name"] for setting in told("show", section)["settings"]}


@pytest.mark.full
def test_a_family_lists_its_recipes(told: Told) -> None:
    assert "gpt2_mini" in [recipe["recipe"] for recipe in told("show", "gpt-2")]


@pytest.mark.parametrize(("word", "hint"), [("posicions", "'positions'"), ("zzzz", "lists what")])
def test_an_unknown_word_is_refused_with_a_hint(refused: Refused, word: str, hint: str) -> None:
    assert hint in refused("show", word)


@pytest.mark.full
def test_every_page_fits_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    for word in ([], ["kinds"], ["tokenizers"], ["transformer"]):
        assert run(["show", *word]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) > 4
        assert max(map(len, lines)) <= 100  # a docstring's longest line


def test_every_setting_is_described() -> None:
    every = [kinds.load(folder, name) for folder in kinds.folders() for name in kinds.names(folder)]
    every += [*describe.sections(Recipe).values(), Recipe, TuneSettings]
    silent = [
        f"{cls.__name__}.{setting.name}"
        for cls in every
        if is_dataclass(cls)
        for setting in describe.settings(cls)
        if not setting.meaning or not setting.values
    ]
    assert not silent


def test_other_names_are_unique_within_a_folder() -> None:
    for folder in kinds.folders():
        names = [word for name in kinds.names(folder) for word in kinds.other_names(folder, name)]
        assert len(set(names)) == len(names), folder
        assert not set(names) & set(kinds.names(folder)), folder


@pytest.mark.product(few=5)
@pytest.mark.parametrize("folder", kinds.folders())
def test_every_folder_says_how_its_kinds_are_chosen(
    folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["show", folder]) == 0
    assert re.search(r"^ *chosen by +\S", capsys.readouterr().out, re.M)


@pytest.mark.parametrize("files", [("run.json", "recipe.toml"), ("grid.toml", "results.json")])
def test_a_run_or_a_comparison_is_shown_by_report(
    files: tuple[str, str], tmp_path: Path, refused: Refused
) -> None:
    for name in files:
        (tmp_path / name).write_text("")
    assert f"'foreword report {tmp_path}' shows what was trained" in refused("show", str(tmp_path))


def test_shipped_recipes_are_not_measured_against_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It counts the parameters, which the table counts too."""
    asked: list[object] = []
    monkeypatch.setattr(
        "foreword.verbs._recipe_pages.require_memory", lambda recipe, **_: asked.append(recipe)
    )
    show("bert_tiny")
    assert not asked
    show("bert_tiny", settings={"model.layers": 1})
    assert len(asked) == 1


def test_grids_and_suites_have_pages_of_their_own(told: Told) -> None:
    assert told("show", "ladder")["budget"] == {"unit": "hours", "amount": 0.1}
    assert [task["name"] for task in told("show", "glue")["tasks"]][:2] == ["CoLA", "SST-2"]
    suites = {page["suite"]: page["of"] for page in told("show", "suites")}
    assert suites.items() >= {"glue": "tune-suite", "cloze": "probe", "lambada": "probe"}.items()
    assert "tagging" not in suites


def test_a_verbs_page_names_its_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["show", "verbs/generate"]) == 0
    output = capsys.readouterr().out
    assert "argument" in output and "--top-k" in output and "setting " not in output
