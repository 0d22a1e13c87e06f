"""What `pretrain` and `check` are asked: a recipe, text, a budget, and what to start from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import typer

from foreword.cli import console
from foreword.cli._heldout import HeldOut, hold_out
from foreword.cli._options import Options
from foreword.errors import UserError
from foreword.ranges import Count, CountOrZero, EpochsOfText, Flops, Hours, TokensOfText

if TYPE_CHECKING:
    from foreword.cli._reading import Reading
    from foreword.runs.continued import StartingModel
    from foreword.runs.recipe import Recipe
    from foreword.runs.run import Inputs


@dataclass(frozen=True)
class RunRequest:
    """A run that was asked for.

    Attributes:
        recipe: with the model of the starting_model, where there is one.
        inputs: what the run reads.
        starting_model: a trained model to go on from.
        new_tokens: that its vocabulary is to be extended by.
    """

    recipe: Recipe
    inputs: Inputs
    starting_model: StartingModel | None = None
    new_tokens: int = 0

    def extended(self) -> RunRequest:
        """The same, its new tokens learned from its texts.

        Raises:
            UserError: there is too little text, or a tokenizer that cannot be extended.
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
    """What a run is to be, as people say it."""

    recipe: Annotated[str, typer.Argument(help="A recipe's name (bert_mini) or a .toml file.")]
    data: Annotated[
        list[str],
        typer.Option("--data", help="Files, folders or globs; or a folder that prepare wrote."),
    ]
    more: Annotated[
        list[str] | None, typer.Argument(help="More text, as a shell's glob gives it.")
    ] = None
    tokenizer: Annotated[
        str | None, typer.Option(help="A tokenizer folder; without it one is trained.")
    ] = None
    heldout: HeldOut = None
    from_: Annotated[
        str | None,
        typer.Option("--from", help="A run or a Hugging Face folder whose weights to start from."),
    ] = None
    extend_vocabulary: Annotated[
        CountOrZero, typer.Option(help="With --from: new tokens to learn from the text.")
    ] = 0
    assign: Annotated[
        list[str] | None, typer.Option("--set", help="A setting: model.layers=6.")
    ] = None
    hours: Annotated[Hours | None, typer.Option(help="Budget in hours.")] = None
    tokens: Annotated[TokensOfText | None, typer.Option(help="Budget in tokens.")] = None
    epochs: Annotated[EpochsOfText | None, typer.Option(help="Budget in epochs.")] = None
    steps: Annotated[Count | None, typer.Option(help="Budget in steps.")] = None
    flops: Annotated[Flops | None, typer.Option(help="Budget in FLOPs.")] = None

    def resolve(self, reading: Reading) -> RunRequest:
        """The run that is asked for; no text is read yet.

        Raises:
            UserError: a mistake in the recipe, options that do not go together, or nothing to
                start from where it is said.
        """
        from foreword.runs.corpus import is_prepared
        from foreword.runs.run import Inputs

        recipe, texts = self._recipe(), (*self.data, *(self.more or []))
        if is_prepared(texts):
            reading.refuse(f"{texts[0]} holds text that is read already")
        settings, apart = hold_out(recipe.prepare, self.heldout)
        recipe = replace(recipe, prepare=settings, read=reading.on(recipe.read))
        if apart and self.more:
            raise UserError(
                f"{self.more[0]}: to train on or to hold out? With --heldout give each its own "
                "--data or --heldout, or a pattern in quotes"
            )
        wanted = RunRequest(recipe, Inputs(texts, self.tokenizer, apart))
        if self.from_ is not None:
            if self.tokenizer is not None:
                raise UserError(
                    "--tokenizer goes without --from: the tokenizer comes with the weights"
                )
            starting_model = self._starting_model(self.from_, recipe)
            return RunRequest(
                starting_model.recipe, wanted.inputs, starting_model, self.extend_vocabulary
            )
        if self.extend_vocabulary:
            raise UserError("--extend-vocabulary: needs --from, a model whose vocabulary to extend")
        return wanted

    def _recipe(self) -> Recipe:
        from foreword.cli._progress import with_budget
        from foreword.runs.recipe import load_recipe

        recipe = load_recipe(self.recipe, self.assign or [])
        return with_budget(recipe, self.hours, self.tokens, self.steps, self.flops, self.epochs)

    def _starting_model(self, path: str, recipe: Recipe) -> StartingModel:
        """What --from names, laid under the recipe."""
        from foreword.interop.start_from import open_starting_model

        starting_model = open_starting_model(path).lay_under(recipe, self.assign or [])
        for note in starting_model.notes:
            console.say(note)
        return starting_model
