"""A run to start: recipe, inputs and starting weights, before any text is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

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
