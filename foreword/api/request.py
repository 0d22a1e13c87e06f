"""A run to start: recipe, text, budget and starting weights, resolved before the text is read.

A dial in place of a recipe (`encoder`) looks at the beginning of the text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from foreword.api._arguments import PathName, hold_out, read_as, read_recipe
from foreword.data.remote_tokens import local
from foreword.data.text_files import ReadSettings
from foreword.errors import UserError
from foreword.interop.start_from import open_starting_model
from foreword.runs import conditions, continued
from foreword.runs.continued import StartingModel
from foreword.runs.corpus import is_prepared
from foreword.runs.dial import FAMILIES, Dial
from foreword.runs.recipe import Recipe
from foreword.runs.run import Inputs
from foreword.runs.sources import source_texts
from foreword.settings import config
from foreword.train.budget import UNITS, Budget
from foreword.train.settings import TrainSettings

Note = Callable[[str], None]


@dataclass(frozen=True)
class RunRequest:
    """A run to start.

    Attributes:
        recipe: the recipe; with the starting model's architecture, where there is one.
        inputs: what the run reads.
        starting_model: a trained model to start from.
        new_tokens: number of tokens to extend its vocabulary by.
        dial: what the recipe was derived from, if it was.
    """

    recipe: Recipe
    inputs: Inputs
    starting_model: StartingModel | None = None
    new_tokens: int = 0
    dial: Dial | None = None

    def extended(self, note: Note) -> RunRequest:
        """Return the request with a vocabulary extended by tokens learned from its texts.

        Args:
            note: receives messages on progress.

        Raises:
            UserError: there is too little text, or the tokenizer cannot be extended.
        """
        if self.starting_model is None or not self.new_tokens:
            return self
        note(f"learning {self.new_tokens:,} new tokens")
        texts, read = self.inputs.texts, self.recipe.read
        starting_model = continued.extend(self.starting_model, texts, read, self.new_tokens)
        return replace(self, starting_model=starting_model, new_tokens=0)


def request(
    recipe: PathName | Recipe,
    data: Sequence[str],
    *,
    settings: Sequence[str] = (),
    budget: Budget | None = None,
    heldout: Sequence[str] | None = None,
    reading: Mapping[str, Any] | None = None,
    tokenizer: str | None = None,
    from_: str | None = None,
    extend_vocabulary: int = 0,
    needs_text: bool = True,
    note: Note,
) -> RunRequest:
    """Return the run to start; no text is read yet, except by a dial.

    Args:
        recipe: name, file or object; or a dial (`encoder`), which a budget in hours turns.
        data: files, folders, globs; or a folder of prepared text; of a recipe with sources the
            folder that their paths start from, or nothing.
        settings: `model.layers=6`.
        budget: in place of the recipe's; `train.steps=1000` among the settings is one too.
        heldout: a share, or files, folders, globs.
        reading: settings of `ReadSettings` that override the recipe's.
        tokenizer: its folder; None trains one.
        from_: a run or a Hugging Face folder to start from.
        extend_vocabulary: number of new tokens to learn.
        needs_text: whether to refuse a recipe without text.
        note: receives messages for the user.

    Raises:
        UserError: the recipe has a mistake, arguments contradict each other, or `from_` names
            nothing to start from.
    """
    data = [local(text) for text in data]
    if data and is_prepared(data) and reading:
        raise UserError(
            f"--{next(iter(reading))}: {data[0]} holds prepared text, which was read already"
        )
    budget, settings = _one_budget(budget, settings)
    dial = None
    if isinstance(recipe, str) and recipe in FAMILIES:
        _require_data(data)
        dial = _turn(recipe, budget, data, tokenizer, from_, settings, reading or {})
        loaded = dial.recipe(settings)
    else:
        loaded = read_recipe(recipe, settings)
        if budget is not None:
            loaded = replace(loaded, train=budget.applied_to(loaded.train))
    if loaded.data.sources:
        data = source_texts(loaded, data)
    elif needs_text:
        _require_data(data)
    prepare, heldout_texts = hold_out(loaded.prepare, heldout or ())
    loaded = replace(loaded, prepare=prepare, read=read_as(loaded.read, reading or {}))
    inputs = Inputs(tuple(data), tokenizer, heldout_texts)
    if from_ is not None:
        if tokenizer is not None:
            raise UserError(
                "--tokenizer cannot be combined with --from: the checkpoint brings its own "
                "tokenizer"
            )
        starting_model = open_starting_model(from_).with_recipe(loaded, settings)
        for line in starting_model.notes:
            note(line)
        return RunRequest(starting_model.recipe, inputs, starting_model, extend_vocabulary)
    if extend_vocabulary:
        raise UserError("--extend-vocabulary: requires --from, the model to extend")
    return RunRequest(loaded, inputs, dial=dial)


def _require_data(data: Sequence[str]) -> None:
    """Raise a UserError if no text is named."""
    if not data:
        raise UserError(
            "--data: name the text: files, folders or globs; or a recipe that has data.sources"
        )


def _one_budget(
    budget: Budget | None, settings: Sequence[str]
) -> tuple[Budget | None, Sequence[str]]:
    """Return the budget given by itself or among the settings, and the settings without it.

    Raises:
        UserError: there is more than one, or its amount is impossible.
    """
    train = config.assign({}, settings).get("train")
    if not isinstance(train, dict):
        return budget, settings
    amounts = {unit: train[unit] for unit in UNITS if unit in train}
    if not amounts:
        return budget, settings
    named = [f"--set train.{unit}" for unit in amounts]
    named = [f"--{budget.unit}", *named] if budget is not None else named
    if len(named) > 1:
        raise UserError(f"give one budget, not {len(named)}: {', '.join(named)}")
    [(unit, amount)] = amounts.items()
    checked = config.build(TrainSettings, {unit: amount}, "train")
    others = [each for each in settings if each.partition("=")[0].strip() != f"train.{unit}"]
    return Budget(unit, getattr(checked, unit)), others


def _turn(
    family: str,
    budget: Budget | None,
    data: Sequence[str],
    tokenizer: str | None,
    from_: str | None,
    settings: Sequence[str],
    reading: Mapping[str, Any],
) -> Dial:
    """Return the dial of a family for a budget in hours.

    Raises:
        UserError: the budget is not in hours, or there is a model to start from.
    """
    recipe = FAMILIES[family].small
    if budget is None or budget.unit != "hours":
        instead = "" if budget is None else f", not --{budget.unit}"
        raise UserError(
            f"{family}: chooses a model by the time that it has; give --hours{instead}, as in "
            f"--hours 1, or name a recipe, such as {recipe}"
        )
    if from_ is not None:
        raise UserError(
            f"{family}: chooses a model, and --from gives one; name a recipe, such as {recipe}"
        )
    read_as(ReadSettings(), reading)  # refused before anything is measured
    return conditions.turn(family, budget.amount, data, tokenizer, settings, reading)
