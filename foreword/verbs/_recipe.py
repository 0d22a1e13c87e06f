"""The arguments of `pretrain` and `check`: a recipe, text, a budget, and weights to start from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from foreword.errors import UserError
from foreword.settings import config
from foreword.settings.ranges import CountOrZero
from foreword.verbs._arguments import assignments, paths, require_path
from foreword.verbs._contract import SET, Flag, PathName, Paths, Settings
from foreword.verbs._groups import Budgets, HoldsOut, ReadsText

if TYPE_CHECKING:
    from foreword.planning.request import RunRequest
    from foreword.runs.recipe import Recipe
    from foreword.train.budget import Budget


@dataclass(frozen=True)
class Trains(HoldsOut, ReadsText, Budgets):
    """A run to start.

    Attributes:
        recipe: a recipe's name (bert_mini) or a .toml file; or encoder, decoder or
            encoder_decoder, sized to --hours, this machine and the text.
        data: text files, folders or globs; or a folder of 'prepare', also s3://...; or, of a
            recipe with data.sources, the folder that their paths start from.
        more: more text, as a shell expands a glob.
        tokenizer: tokenizer folder; default: train one on the text.
        from_: start from the weights of a run or a Hugging Face folder.
        extend_vocabulary: with --from: number of new tokens to learn from the text.
        settings: a setting: model.layers=6; repeatable.
    """

    recipe: Annotated[PathName | Recipe, Flag(is_argument=True, takes=str)]
    data: Paths | None = None
    _: KW_ONLY
    more: Annotated[Paths, Flag(is_argument=True, is_command_only=True, takes=list[str])] = ()
    tokenizer: PathName | None = None
    from_: PathName | None = None
    extend_vocabulary: CountOrZero = 0
    settings: Annotated[Settings, SET] = ()

    def text(self) -> tuple[str, ...]:
        """Return the text that is named.

        Raises:
            UserError: text follows --heldout, where it may belong to --data.
        """
        data, more = paths(self.data), paths(self.more)
        if more and self.heldout is not None and self.holds_out_text:
            raise UserError(
                f"{more[0]}: ambiguous: put --data or --heldout before each file, or a pattern in "
                "quotes"
            )
        return (*data, *more)

    def read_recipe(self, settings: Sequence[str]) -> Recipe:
        """Return the recipe given by name, by file or as an object, with settings applied.

        Raises:
            UserError: there is no such recipe, or a mistake in it.
        """
        from foreword.runs.recipe import Recipe, load_recipe

        if not isinstance(self.recipe, Recipe):
            return load_recipe(require_path(self.recipe, "RECIPE"), settings)
        return config.build(Recipe, config.assign(config.to_table(self.recipe), settings))

    def request(
        self, data: Sequence[str], note: Callable[[str], None], *, needs_text: bool = True
    ) -> RunRequest:
        """Return the run to start; no text is read yet, except by a dial.

        Args:
            data: files, folders, globs; or a folder of prepared text; of a recipe with sources the
                folder that their paths start from, or nothing.
            note: receives messages for the user.
            needs_text: whether to refuse a recipe without text.

        Raises:
            UserError: the recipe has a mistake, arguments contradict each other, or `from_` names
                nothing to start from.
        """
        from foreword.data.remote_tokens import local
        from foreword.interop.importing import open_starting_model
        from foreword.planning import conditions
        from foreword.planning.continuing import continued_recipe
        from foreword.planning.dial import FAMILIES
        from foreword.planning.request import RunRequest
        from foreword.runs.corpus import is_prepared
        from foreword.runs.run import Inputs
        from foreword.runs.sources import source_texts

        # The recipe, its budget and its text.
        data = [local(text) for text in data]
        if data and is_prepared(data):
            self.refuse_reading(f"{data[0]} holds prepared text, which was read already")
        tokenizer = None if self.tokenizer is None else str(Path(self.tokenizer))
        from_ = None if self.from_ is None else str(Path(self.from_))
        budget, settings = _one_budget(self.budget(), assignments(self.settings))
        dial = None
        if isinstance(self.recipe, str) and self.recipe in FAMILIES:
            _require_data(data)
            hours = self._hours_of_dial(budget)
            dial = conditions.local_dial(
                self.recipe, hours, data, tokenizer, settings, self.reading
            )
            recipe = dial.recipe(settings)
        else:
            recipe = self.read_recipe(settings)
            if budget is not None:
                recipe = replace(recipe, train=budget.applied_to(recipe.train))
        if recipe.data.sources:
            data = source_texts(recipe, data)
        elif needs_text:
            _require_data(data)
        prepare, heldout = self.held_out(recipe.prepare)
        recipe = replace(recipe, prepare=prepare, read=self.read_as(recipe.read))
        inputs = Inputs(tuple(data), tokenizer, heldout)

        # The weights to start from.
        if from_ is None:
            if self.extend_vocabulary:
                raise UserError("--extend-vocabulary: requires --from, the model to extend")
            if recipe.continuation is not None:
                raise UserError(f"{self.recipe}: continues a model; --from names it")
            return RunRequest(recipe, inputs, dial=dial)
        own = ["--tokenizer"] if tokenizer is not None else []
        own += [f"--set {each}" for each in settings if each.startswith("tokenizer")]
        if own:
            raise UserError(
                f"{own[0]} cannot be combined with --from: the checkpoint brings its own "
                "tokenizer; --extend-vocabulary adds tokens to it"
            )
        starting_model = open_starting_model(from_)
        if recipe.continuation is not None:
            recipe = continued_recipe(
                starting_model, recipe, settings, has_budget=budget is not None
            )
        starting_model = starting_model.with_recipe(recipe, settings)
        for line in starting_model.notes:
            note(line)
        return RunRequest(starting_model.recipe, inputs, starting_model, self.extend_vocabulary)

    def _hours_of_dial(self, budget: Budget | None) -> float:
        from foreword.data.text_files import ReadSettings
        from foreword.planning.dial import FAMILIES

        family = str(self.recipe)
        recipe = FAMILIES[family].small
        if budget is None or budget.unit != "hours":
            instead = "" if budget is None else f", not --{budget.unit}"
            raise UserError(
                f"{family}: chooses a model by the time that it has; give --hours{instead}, as in "
                f"--hours 1, or name a recipe, such as {recipe}"
            )
        if self.from_ is not None:
            raise UserError(
                f"{family}: chooses a model, and --from gives one; name a recipe, such as {recipe}"
            )
        self.read_as(ReadSettings())  # refused before anything is measured
        return budget.amount


def _require_data(data: Sequence[str]) -> None:
    """Raise a UserError if no text is named."""
    if not data:
        raise UserError(
            "--data: name the text: files, folders or globs; or a recipe that has data.sources"
        )


def _one_budget(
    budget: Budget | None, settings: Sequence[str]
) -> tuple[Budget | None, Sequence[str]]:
    """Return the budget given by itself or among the settings, and the settings without it."""
    from foreword.train.budget import UNITS, Budget
    from foreword.train.settings import TrainSettings

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
