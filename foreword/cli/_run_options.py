"""The options of `pretrain` and `check`: a recipe, text, a budget, and weights to start from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import typer

from foreword.cli import console
from foreword.cli._heldout import HeldOut, hold_out
from foreword.cli._options import Options, PathText
from foreword.errors import UserError
from foreword.ranges import CountOrZero

if TYPE_CHECKING:
    from foreword.cli._budget_options import BudgetOptions
    from foreword.cli._reading import Reading
    from foreword.runs.continued import StartingModel
    from foreword.runs.recipe import Recipe
    from foreword.runs.run import Inputs


@dataclass(frozen=True)
class RunRequest:
    """A run to start.

    Attributes:
        recipe: the recipe; with the starting model's architecture, where there is one.
        inputs: what the run reads.
        starting_model: a trained model to start from.
        new_tokens: number of tokens to extend its vocabulary by.
    """

    recipe: Recipe
    inputs: Inputs
    starting_model: StartingModel | None = None
    new_tokens: int = 0

    def extended(self) -> RunRequest:
        """Return the request with a vocabulary extended by tokens learned from its texts.

        Raises:
            UserError: there is too little text, or the tokenizer cannot be extended.
        """
        from foreword.runs import continued

        if self.starting_model is None or not self.new_tokens:
            return self
        console.say(f"learning {self.new_tokens:,} new tokens")
        texts, read = self.inputs.texts, self.recipe.read
        starting_model = continued.extend(self.starting_model, texts, read, self.new_tokens)
        return replace(self, starting_model=starting_model, new_tokens=0)


@dataclass(frozen=True)
class RunOptions(Options):
    """The recipe, the text and the starting weights of a run."""

    recipe: Annotated[str, typer.Argument(help="A recipe's name (bert_mini) or a .toml file.")]
    data: Annotated[
        list[PathText],
        typer.Option("--data", help="Text: files, folders or globs; or a folder of 'prepare'."),
    ]
    more: Annotated[
        list[PathText] | None, typer.Argument(help="More text, as a shell expands a glob.")
    ] = None
    tokenizer: Annotated[
        PathText | None, typer.Option(help="Tokenizer folder; default: train one on the text.")
    ] = None
    heldout: HeldOut = None
    from_: Annotated[
        PathText | None,
        typer.Option("--from", help="Start from the weights of a run or a Hugging Face folder."),
    ] = None
    extend_vocabulary: Annotated[
        CountOrZero, typer.Option(help="With --from: number of new tokens to learn from the text.")
    ] = 0
    assign: Annotated[
        list[str] | None, typer.Option("--set", help="A setting: model.layers=6; repeatable.")
    ] = None

    def resolve(self, budget: BudgetOptions, reading: Reading) -> RunRequest:
        """Return the run to start; no text is read yet.

        Raises:
            UserError: the recipe has a mistake, options contradict each other, or --from names
                nothing to start from.
        """
        from foreword.runs.corpus import is_prepared
        from foreword.runs.recipe import load_recipe
        from foreword.runs.run import Inputs

        recipe = budget.on(load_recipe(self.recipe, self.assign or []))
        texts = (*self.data, *(self.more or []))
        if is_prepared(texts):
            reading.refuse(f"{texts[0]} holds prepared text, which was read already")
        settings, heldout_texts = hold_out(recipe.prepare, self.heldout)
        recipe = replace(recipe, prepare=settings, read=reading.on(recipe.read))
        if heldout_texts and self.more:
            raise UserError(
                f"{self.more[0]}: to train on or to hold out? With --heldout, put --data or "
                "--heldout before each file, or a pattern in quotes"
            )
        inputs = Inputs(texts, self.tokenizer, heldout_texts)
        if self.from_ is not None:
            if self.tokenizer is not None:
                raise UserError(
                    "--tokenizer cannot be combined with --from: the checkpoint brings its own "
                    "tokenizer"
                )
            starting_model = self._starting_model(self.from_, recipe)
            return RunRequest(starting_model.recipe, inputs, starting_model, self.extend_vocabulary)
        if self.extend_vocabulary:
            raise UserError("--extend-vocabulary: requires --from, the model to extend")
        return RunRequest(recipe, inputs)

    def _starting_model(self, path: str, recipe: Recipe) -> StartingModel:
        """Open the model of --from, and combine its recipe with this one."""
        from foreword.interop.start_from import open_starting_model

        starting_model = open_starting_model(path).with_recipe(recipe, self.assign or [])
        for note in starting_model.notes:
            console.say(note)
        return starting_model
