"""`foreword fill`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

from foreword.display.results import Part, Result, ResultTable, Text
from foreword.formatting import probability
from foreword.settings.ranges import Count
from foreword.verbs._contract import ARGUMENT, Verb
from foreword.verbs._groups import ReadsModel

if TYPE_CHECKING:
    from foreword.evaluation.filling import FilledText


@dataclass(frozen=True, repr=False)
class FilledResult(Result):
    """A text with its blanks filled.

    Attributes:
        filled: the text, and the candidates for each blank, likeliest first.
    """

    filled: FilledText

    def tables(self) -> Sequence[Part]:
        """Return the text, and the candidates."""
        rows = [
            {
                "blank": n if rank == 0 else "",
                "filling": candidate.text,
                "probability": probability(candidate.probability),
            }
            for n, blank in enumerate(self.filled.blanks, 1)
            for rank, candidate in enumerate(blank)
        ]
        order = ", ".join(map(str, self.filled.order))
        filled = [f"(filled in this order: {order})"] if len(self.filled.order) > 1 else []
        return [Text(self.filled.text), ResultTable(rows), *filled]

    def data(self) -> dict[str, Any]:
        """Return the text, and the candidates."""
        return {
            "text": self.filled.text,
            "blanks": [[asdict(candidate) for candidate in blank] for blank in self.filled.blanks],
            **({"order": list(self.filled.order)} if self.filled.order else {}),
        }


@dataclass(frozen=True)
class Fill(ReadsModel, Verb[FilledResult]):
    """Fill the blanks of a text, [MASK] or T5's <extra_id_0>, and show the likeliest candidates.

        foreword.fill("runs/books", "The capital of France is [MASK].")

    Attributes:
        text: "The capital of France is [MASK]."
        top: candidates to show per blank.
    """

    text: Annotated[str, ARGUMENT]
    top: Count = 5

    def __call__(self) -> FilledResult:
        loaded = self.opened()
        filled = loaded.fill(self.text, self.top)
        self.say_unknown(loaded, self.text)
        return FilledResult(filled)
