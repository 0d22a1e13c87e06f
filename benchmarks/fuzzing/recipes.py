"""Recipes: shipped tiny ones with a few settings changed, rightly or wrongly, trained and used."""

from __future__ import annotations

import copy
import functools
import random
from typing import Any

from foreword.runs.recipe import Recipe, load_recipe
from foreword.settings import config
from fuzzing.case import Command, Sandbox
from fuzzing.fixtures import OFFLINE, QUICK, SMALL
from fuzzing.values import WILD, Setting, drop, likely, put, settings

TINY = [name for name in config.RECIPES.names() if name.endswith("_tiny")]
KEPT = ("train.steps", "train.hours", "train.tokens", "train.flops", "train.epochs")


def changed(sandbox: Sandbox) -> list[Command]:
    """A recipe with one to four settings of the right type."""
    rng = sandbox.rng
    name = rng.choice(TINY)
    table = base(name)
    for _ in range(rng.randint(1, 4)):
        setting = _any_setting(table, rng)
        table = put(table, setting.path, likely(setting, rng))
    return [Command(pretrain(sandbox, write(sandbox, table), name)), *used(sandbox, name)]


def mutated(sandbox: Sandbox) -> list[Command]:
    """A recipe with a wrong setting, trained if it is accepted."""
    name, path = _mutated(sandbox)
    return [Command(pretrain(sandbox, path, name)), *used(sandbox, name)]


def read(sandbox: Sandbox) -> list[Command]:
    """The same, read and no more."""
    return [Command(["show", _mutated(sandbox)[1]])]


def _mutated(sandbox: Sandbox) -> tuple[str, str]:
    """The name of a shipped recipe, and a file like it with a mistake."""
    rng = sandbox.rng
    name = rng.choice(TINY)
    table = base(name)
    for _ in range(rng.choice((1, 1, 1, 2))):
        setting = _any_setting(table, rng)
        path, how = setting.path, rng.random()
        if how < 0.7:
            table = put(table, path, rng.choice(WILD))
        elif how < 0.8:
            table = put(table, (*path[:-1], f"{path[-1]}x"), rng.choice(WILD))
        elif how < 0.9:
            drop(table, path)
        else:
            table = put(table, (*path, "deeper"), rng.choice(WILD))
    return name, write(sandbox, table, is_broken=rng.random() < 0.15)


def assigned(sandbox: Sandbox) -> list[Command]:
    """A shipped recipe with a wrong `--set`."""
    rng = sandbox.rng
    name = rng.choice(TINY)
    setting = _any_setting(base(name), rng)
    value = rng.choice([str(rng.choice(WILD)), config.to_toml(rng.choice(WILD))])
    key = ".".join(setting.path)
    words = pretrain(sandbox, name, name)
    return [Command([*words, "--set", f"{key}={value}".replace("\x00", "")]), *used(sandbox, name)]


def base(name: str) -> dict[str, Any]:
    """A tiny recipe with all its settings, made smaller still."""
    return copy.deepcopy(_base(name))


@functools.cache
def _base(name: str) -> dict[str, Any]:
    table = config.to_table(load_recipe(name, [*SMALL[:1]]))
    is_offline = name.removesuffix("_tiny") in OFFLINE
    # A mutation may give an offline recipe a network, which would train for all its steps.
    small = [*SMALL, *(("train.steps=2",) if is_offline else QUICK)]
    known = [s for s in small if _has(table, s.partition("=")[0])]
    return config.assign(table, known)


def _has(table: dict[str, Any], key: str) -> bool:
    part, _, name = key.partition(".")
    return name in table.get(part, {})


def _any_setting(table: dict[str, Any], rng: random.Random) -> Setting:
    """Choose a setting; parts and kinds as often as single values."""
    found = [s for s in settings(Recipe, _known(table)) if ".".join(s.path) not in KEPT]
    part = rng.choice(sorted({s.path[0] for s in found}))
    return rng.choice([s for s in found if s.path[0] == part])


def _known(table: dict[str, Any]) -> dict[str, Any]:
    """The table as far as its kinds exist, to look for settings in."""
    known = dict(table)
    while True:
        try:
            settings(Recipe, known)
        except Exception:  # whatever a mutation made of it
            known.popitem()
        else:
            return known


def write(sandbox: Sandbox, table: dict[str, Any], *, is_broken: bool = False) -> str:
    """The recipe as a file, perhaps no longer TOML."""
    text = config.dumps(table)
    if is_broken:
        at = sandbox.rng.randrange(len(text))
        text = (
            text[:at] + sandbox.rng.choice(("=", "[", '"', "\n\n]]", "\x00", "é")) + text[at + 1 :]
        )
    return str(sandbox.write("recipe.toml", text.encode("utf-8", "surrogateescape")))


def pretrain(sandbox: Sandbox, recipe: str, name: str) -> list[str]:
    """The command for two steps of a recipe that is like the shipped one called `name`."""
    is_parallel = name.startswith(("seq2seq", "translator"))
    data = sandbox.fixtures / ("pairs/train.en" if is_parallel else "text.txt")
    words = ["pretrain", recipe, "--data", str(data), "--out", sandbox.out]
    if not is_parallel:
        words += ["--documents", "paragraph"]
    if recipe == name:
        small = [s for s in SMALL if _has(config.to_table(load_recipe(name)), s.partition("=")[0])]
        words += [word for s in small for word in ("--set", s)]
    return words if name.removesuffix("_tiny") in OFFLINE else [*words, "--steps", "2"]


def used(sandbox: Sandbox, name: str) -> list[Command]:
    """What reads a run back; of the ways one at least must do."""
    line = (sandbox.fixtures / "line.txt").read_text(encoding="utf-8").strip()
    word = line.split()[0]
    blank = "<extra_id_0>" if name.startswith(("t5", "ul2")) else "[MASK]"
    ways = (
        ["fill", sandbox.out, f"{word} {blank} {word}"],
        ["generate", sandbox.out, word, "--tokens", "4"],
        ["score", sandbox.out, line],
        ["score", sandbox.out, line, "--source", line],
        ["neighbours", sandbox.out, word.lower()],
    )
    reading = [Command(words, needs=True, reads_back=True) for words in ways]
    return [*reading, Command(["report", sandbox.out, "--json"], needs=True)]
