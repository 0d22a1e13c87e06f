from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from foreword.comparison.keys import RunKey
from foreword.errors import UserError
from foreword.runs.recipe import Recipe, load_recipe
from foreword.settings import config
from foreword.settings.kinds import part
from foreword.settings.ranges import Ranged, Share
from foreword.train.embedding_init.cooccurrence import Cooccurrence


@dataclass(frozen=True)
class Inner:
    steps: int = 3
    share: float = 0.5


@dataclass(frozen=True)
class Whole(Ranged):
    objective: Any = part("objectives")
    objectives: tuple[Any, ...] = part("objectives", is_optional=True)
    position: Any = part("nn/positions", "learned")
    name: str = ""
    rate: Share = 0.1
    count: int = 2
    flag: bool = False
    mode: Literal["auto", "on"] = "auto"
    limit: int | None = None
    sizes: tuple[int, ...] = ()
    inner: Inner = field(default_factory=Inner)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.count < 0:
            raise ValueError(f"count: must not be negative, got {self.count}")


MASKED: dict[str, Any] = {"objective": "masked"}


def build(**settings: Any) -> Whole:
    return config.build(Whole, MASKED | settings)


def message(**settings: Any) -> str:
    with pytest.raises(UserError) as caught:
        config.build(Whole, MASKED | settings)
    text = str(caught.value)
    assert "\n" not in text
    return text


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"rate": 1e-5, "count": 7, "flag": True, "mode": "on", "limit": 5, "sizes": [1, 2]},
        {"name": 'quotes " and \\ and \n and \x7f and é and 日本'},
        {"objective": {"kind": "masked", "rate": 0.4, "whole_words": True}},
        {"objective": {"kind": "span_corruption", "end": ""}},
        {"position": {"kind": "rotary", "base": 160000.0}},
        {"position": "none", "inner": {"steps": 9, "share": 0.25}},
        {"rate": 0, "limit": 10**18},
    ],
)
def test_written_recipes_read_back_equal(settings: dict[str, Any]) -> None:
    value = build(**settings)
    text = config.dumps(config.to_table(value))
    assert config.build(Whole, tomllib.loads(text)) == value


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"raet": 1}, "raet: no such setting; did you mean 'rate'?"),
        (
            {"objective": {"kind": "masked", "raet": 1}},
            "objective.raet: kind 'masked' has no such setting; did you mean 'rate'?",
        ),
        ({"inner": {"step": 1}}, "inner.step: no such setting; did you mean 'steps'?"),
        ({"objective": "maskd"}, "objective.kind: no kind 'maskd'; did you mean 'masked'?"),
        ({"objective": 3}, "objective: expected a table with a kind, got 3"),
        ({"count": "many"}, "count: expected a whole number, got 'many'"),
        ({"count": 2.5}, "count: expected a whole number, got 2.5"),
        ({"count": True}, "count: expected a whole number, got True"),
        ({"rate": True}, "rate: expected a number, got True"),
        ({"rate": "0.1"}, "rate: expected a number, got '0.1'"),
        ({"rate": float("nan")}, "rate: must be a number from 0 to 1, got nan"),
        ({"flag": 1}, "flag: expected true or false, got 1"),
        ({"name": 5}, "name: expected a string, got 5"),
        ({"mode": "autp"}, "mode: 'autp' is not a choice; choose from: auto, "),
        ({"limit": "x"}, "limit: expected a whole number, got 'x'"),
        ({"sizes": 3}, "sizes: expected a list, got 3"),
        ({"sizes": [1, "x"]}, "sizes[1]: expected a whole number, got 'x'"),
        ({"inner": 3}, "inner: expected a table, got 3"),
        ({"count": -1}, "count: must not be negative, got -1"),
        (
            {"objective": {"kind": "masked", "rate": 2.0}},
            "objective.rate: must be a number above 0 and at most 1, got 2.0",
        ),
        ({"objective": {"rate": 0.2}}, "objective.kind: required; one of: "),
    ],
)
def test_a_mistake_is_named_in_one_line(settings: dict[str, Any], expected: str) -> None:
    assert message(**settings).startswith(expected)


def test_missing_settings_are_named() -> None:
    with pytest.raises(UserError, match="objective: is needed"):
        config.build(Whole, {})


def test_whole_numbers_may_be_written_as_1e9() -> None:
    assert build(count=1e9).count == 10**9
    assert isinstance(build(count=1e9).count, int)
    assert isinstance(build(rate=1).rate, float)


def test_a_string_may_look_like_a_date_or_a_time() -> None:
    table = config.assign(MASKED, ["name=02:00:00"])
    assert config.build(Whole, table).name == "02:00:00"
    assert config.build(Whole, config.assign(MASKED, ["name=2026-11-23"])).name == "2026-11-23"


def recipe(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_extends_merges_tables(tmp_path: Path) -> None:
    recipe(tmp_path, "a.toml", 'count = 1\n[objective]\nkind = "masked"\nrate = 0.2\nmask = 0.5\n')
    recipe(tmp_path, "b.toml", 'extends = "a.toml"\nname = "b"\n[objective]\nrate = 0.3\n')
    path = recipe(tmp_path, "c.toml", 'extends = "b.toml"\n[inner]\nsteps = 8\n')
    assert config.read(path) == {
        "count": 1,
        "name": "b",
        "objective": {"kind": "masked", "rate": 0.3, "mask": 0.5},
        "inner": {"steps": 8},
    }


def test_another_kind_replaces_all_settings(tmp_path: Path) -> None:
    recipe(tmp_path, "a.toml", '[objective]\nkind = "masked"\nrate = 0.2\n')
    path = recipe(tmp_path, "b.toml", 'extends = "a.toml"\n[objective]\nkind = "causal"\n')
    assert config.read(path)["objective"] == {"kind": "causal"}


def test_a_setting_of_a_kind_given_by_its_bare_name_keeps_the_kind() -> None:
    table = config.assign({"position": "rotary"}, ["position.base=500.0"])
    assert table == {"position": {"kind": "rotary", "base": 500.0}}


def test_extending_in_a_circle_or_nothing_is_refused(tmp_path: Path) -> None:
    one = recipe(tmp_path, "a.toml", 'extends = "b.toml"\n')
    recipe(tmp_path, "b.toml", 'extends = "a.toml"\n')
    with pytest.raises(UserError, match=r"a\.toml: extends itself"):
        config.read(one)
    missing = recipe(tmp_path, "c.toml", 'extends = "bert_bsae"\n')
    with pytest.raises(UserError, match=r"no recipe 'bert_bsae'.*did you mean 'bert_base'?"):
        config.read(missing)
    with pytest.raises(UserError, match=r"extends: expected the name of a recipe, got 3"):
        config.read(recipe(tmp_path, "d.toml", "extends = 3\n"))


def test_a_shipped_recipe_can_be_extended(tmp_path: Path) -> None:
    path = recipe(tmp_path, "a.toml", 'extends = "bert_base"\n[model]\nlayers = 3\n')
    model = config.read(path)["model"]
    assert (model["layers"], model["d_model"]) == (3, 768)


def test_unreadable_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none\.toml: cannot be read"):
        config.read(tmp_path / "none.toml")
    with pytest.raises(UserError, match=r"a\.toml: not valid TOML"):
        config.read(recipe(tmp_path, "a.toml", "count = = 3"))
    (tmp_path / "b.toml").write_bytes(b"name = '\xff'")
    expected = r"b\.toml: cannot be read: byte 8 \(0xff\) is not UTF-8; save it as UTF-8$"
    with pytest.raises(UserError, match=expected):
        config.read(tmp_path / "b.toml")


def test_a_mistake_names_its_file(tmp_path: Path) -> None:
    own = recipe(tmp_path, "own.toml", 'extends = "base.toml"\n[inner]\nsteps = 8\n')

    def fails(base: str, *over: dict[str, Any]) -> str:
        recipe(tmp_path, "base.toml", base)
        with pytest.raises(UserError) as caught:
            config.load(Whole, own, *over)
        return str(caught.value).removeprefix(f"{tmp_path}/")

    assert fails("").startswith("own.toml: objective: is needed")
    whole = 'objective = "masked"\n'
    assert fails(whole + "raet = 1").startswith("base.toml: raet: no such setting")
    assert fails(whole + "[inner]\nsteps = 'x'\nshar = 1").startswith("base.toml: inner.shar:")
    several = "objectives = ['causal', {kind='masked', raet=1}]\n"
    assert fails(whole + several).startswith("base.toml: objectives[1].raet")
    assert fails("objective = ['masked']").startswith("base.toml: objective: expected a kind, got")
    assert fails(whole + "objectives = 'masked'").startswith("base.toml: objectives: expected a li")
    assert fails("objective = 'maskd'").startswith("base.toml: objective.kind: no kind 'maskd'")
    assert fails(whole, {"inner": {"steps": "many"}}).startswith("inner.steps: expected")
    assert fails(whole, {"count": 3}, {"inner": {"step": 1}}).startswith("inner.step: no such")
    recipe(tmp_path, "base.toml", whole)
    assert config.load(Whole, own, {"count": 3}, {"count": 4}).count == 4
    assert config.load(Whole, own).inner == Inner(steps=8)


@pytest.mark.parametrize(
    ("assignment", "expected"),
    [
        ("count=4", {"count": 4}),
        ("rate = 1e-4", {"rate": 1e-4}),
        ("inner.steps=9", {"inner": {"steps": 9, "share": 0.1}}),
        ("objective.kind=causal", {"objective": {"kind": "causal"}}),
        ("objective=causal", {"objective": "causal"}),
        ("name=two words", {"name": "two words"}),
        ('name="3"', {"name": "3"}),
        ("sizes=[1, 2]", {"sizes": [1, 2]}),
        ("flag=true", {"flag": True}),
        ("name=", {"name": ""}),
    ],
)
def test_set_assigns_toml_values_and_bare_words(assignment: str, expected: dict[str, Any]) -> None:
    table = {"objective": {"kind": "masked", "rate": 0.2}, "inner": {"steps": 1, "share": 0.1}}
    assert config.assign(table, [assignment]) == table | expected


def test_later_assignments_override_earlier_ones() -> None:
    table = {"inner": {"steps": 1}}
    assert config.assign(table, ["inner.steps=2", "inner.steps=3"]) == {"inner": {"steps": 3}}
    assert table == {"inner": {"steps": 1}}


def test_the_order_of_kinds_and_their_settings_does_not_matter() -> None:
    table = {"model": {"kind": "lstm", "layers": 4, "size": 2}}
    for order in (1, -1):
        given = ["model.layers=2", "model.kind=rnn"][::order]
        assert config.assign(table, given) == {"model": {"kind": "rnn", "layers": 2}}


@pytest.mark.parametrize("assignment", ["count", "=3", "inner..steps=3", ".count=3"])
def test_set_without_a_key_or_a_value_is_refused(assignment: str) -> None:
    with pytest.raises(UserError, match=r"expected key\.name=value"):
        config.assign({}, [assignment])


def test_recipes_are_found_by_path_and_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert config.RECIPES.find("bert_base") == config.RECIPES.folder / "bert_base.toml"
    monkeypatch.chdir(tmp_path)
    for name in ("bert_base.toml", "my/bert_base.toml"):  # a file is not replaced by another
        message = f"there is no file {name}; a shipped recipe is called 'bert_base'"
        with pytest.raises(UserError, match=message):
            config.RECIPES.find(name)
    own = recipe(tmp_path, "bert_base.toml", "")
    assert config.RECIPES.find("bert_base.toml").resolve() == own
    assert config.RECIPES.find("bert_base") == config.RECIPES.folder / "bert_base.toml"
    with pytest.raises(UserError, match=r"no recipe 'bert_bse'.*did you mean 'bert_base'?"):
        config.RECIPES.find("bert_bse")
    with pytest.raises(UserError, match=r"there is no file qqqq\.toml$"):
        config.RECIPES.find("qqqq.toml")


def test_an_item_of_a_list_is_set_by_its_number() -> None:
    table = {"terms": [{"kind": "masked", "rate": 0.1}, "next_sentence"], "weights": [1, 2]}
    changed = config.assign(table, ["terms[0].rate=0.3", "terms[1]=sentence_order"])
    assert changed["terms"] == [{"kind": "masked", "rate": 0.3}, "sentence_order"]
    assert table["terms"][0] == {"kind": "masked", "rate": 0.1}
    with pytest.raises(UserError, match=r"terms\[2\]: there are 2, counted from 0"):
        config.assign(table, ["terms[2].rate=0.3"])
    with pytest.raises(UserError, match=r"^objective.terms\[2\]: there are 2, counted from 0"):
        config.assign({"objective": table}, ["objective.terms[2].rate=0.3"])


@pytest.mark.parametrize("item", ["[-1]", "[a]", "[]"])
def test_an_item_without_a_number_is_refused(item: str) -> None:
    with pytest.raises(UserError, match="items are numbered from 0, as in key"):
        config.assign({"terms": ["masked"]}, [f"terms{item}.rate=0.1"])


def test_an_item_of_a_default_list_is_set_by_its_number() -> None:
    recipe = load_recipe("bert_tiny", ["objective=sum", "objective.terms[0].rate=0.3"])
    assert recipe.objective.terms[0].rate == 0.3
    assert len(recipe.objective.terms) == 2


def test_a_misplaced_setting_is_pointed_to_its_part() -> None:
    with pytest.raises(UserError, match=r"has it: objective.terms\[0\].rate"):
        load_recipe("bert_tiny", ["objective.rate=0.3"])
    with pytest.raises(UserError, match=r"has it: model.position.length"):
        load_recipe("bert_tiny", ["model.length=64"])


def test_a_kind_known_by_another_name_is_proposed() -> None:
    with pytest.raises(UserError, match="did you mean 'rotary'"):
        load_recipe("gpt2_tiny", ["model.position=rope"])


@pytest.mark.product(few=1)
@pytest.mark.parametrize(
    "text",
    ["a = " + "[" * 100_000, "a" + ".a" * 20_000 + " = 1", "a = " + "{a=" * 200 + "1" + "}" * 200],
)
def test_deep_nesting_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "deep.toml").write_text(text)
    with pytest.raises(UserError, match=r"deep\.toml: nested too deeply"):
        config.read_toml(tmp_path / "deep.toml")
    with pytest.raises(UserError, match=r"--set a.*nested too deeply"):
        config.assign({}, ["a" + ".a" * 20_000 + "=1"])


OLD_NAMES = {
    "workers = 2": "train.workers: is now train.threads",
    "keep = 3": "train.keep: is now train.kept_checkpoints",
    "patience = 4": "train.patience: is now train.max_nonfinite_steps",
    'checkpointing = "full"': "train.checkpointing: is now train.activation_checkpointing",
    "word_vectors = 9": "train.word_vectors: is now train.embedding_init = "
    '{kind = "cooccurrence", tokens = 9}',
}


@pytest.mark.parametrize("line", OLD_NAMES)
def test_an_old_name_is_refused_with_the_new_one(line: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(f'extends = "bert_tiny"\n[train]\n{line}\n', encoding="utf-8")
    for recipe, settings in (("bert_tiny", [f"train.{line}"]), (str(file), [])):
        with pytest.raises(UserError) as error:
            load_recipe(recipe, settings)
        assert str(error.value).removeprefix(f"{file}: ") == OLD_NAMES[line]


def test_what_foreword_stored_under_old_names_is_read(tmp_path: Path) -> None:
    file, lines = tmp_path / "recipe.toml", "\n".join(OLD_NAMES)
    file.write_text(f'extends = "bert_tiny"\n[train]\n{lines}\n', encoding="utf-8")
    train = config.load(Recipe, file, is_stored=True).train
    assert (train.threads, train.kept_checkpoints, train.max_nonfinite_steps) == (2, 3, 4)
    assert train.activation_checkpointing == "full"
    assert train.embedding_init == Cooccurrence(9)
    key = {"recipe": {"train": {"word_vectors": 0, "keep": 3}}, "data": "0"}
    updated = config.in_todays_names(RunKey, key)["recipe"]["train"]
    assert updated == {"embedding_init": "random", "kept_checkpoints": 3}


@pytest.mark.parametrize("name", ["modern_encoder_mini", "t5_mini", "causal_first_mini"])
def test_a_table_without_defaults_makes_the_same_recipe(name: str) -> None:
    recipe = load_recipe(name)
    table = config.to_table(recipe, with_defaults=False)
    assert config.build(Recipe, table) == recipe
    assert len(config.dumps(table)) < len(config.dumps(config.to_table(recipe))) / 2
