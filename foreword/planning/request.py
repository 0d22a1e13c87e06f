"""A run to start: recipe, inputs and starting weights, before any text is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from foreword.planning.continuing import with_text
from foreword.planning.dial import Dial
from foreword.runs import continued
from foreword.runs.continued import StartingModel
from foreword.runs.recipe import Recipe
from foreword.runs.run import Inputs

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

    def continued(self, note: Note) -> RunRequest:
        """Return the request with the budget and the replay of a continuation of its model.

        Args:
            note: receives what a reader of the run has to know, a line each.

        Raises:
            UserError: the text cannot be read.
        """
        recipe, start, texts = self.recipe, self.starting_model, self.inputs.texts
        if recipe.continuation is None or start is None or not texts:
            return self
        recipe, texts = with_text(start, recipe, texts, note, is_extended=bool(self.new_tokens))
        start = replace(start, recipe=recipe)
        return replace(
            self, recipe=recipe, inputs=replace(self.inputs, texts=texts), starting_model=start
        )

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
