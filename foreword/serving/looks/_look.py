"""What a look inside of models is, and what looks share."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from annotated_types import Interval

from foreword.errors import TooLongError, UserError
from foreword.runs.trained_model import TrainedModel
from foreword.serving.bodies import Body
from foreword.serving.served import Served
from foreword.serving.worker import ItemKind, RequestJob
from foreword.types import Array

MOST_TOKENS = 256  # of a text that is looked at
Compute = Callable[[], dict[str, Any]]
Few = Annotated[int, Interval(ge=1, le=32)]


@dataclass(frozen=True)
class Look:
    """A request of `/inspect/NAME`.

    Attributes:
        body: what it has.
        row: computes the row of the answer, in the model's thread; checks the request first.
        check: raises UserError if a model cannot do it.
        summary: what it does, for the schema.
    """

    body: type[Body]
    row: Callable[[Served, Any], Compute]
    check: Callable[[Served], object]
    summary: str

    def can(self, served: Served) -> bool:
        """Return whether a model can do it."""
        try:
            self.check(served)
        except UserError:
            return False
        return True

    def job(self, served: Served, body: Body) -> RequestJob:
        """Return the work of a request, a single row that no other request shares.

        Raises:
            UserError: the model cannot do it, or not this.
        """
        self.check(served)
        compute = self.row(served, body)
        return RequestJob(deque([(0, None)]), ItemKind(object(), lambda items: [compute()], 1))


def named(model: TrainedModel, token: int) -> dict[str, Any]:
    """Return a token with its text and its readable form."""
    spelled = model.vocab.spellings[token].decode(errors="replace")
    name, begins = model.tokenizer.token(token), bool(model.vocab.starts_word[token])
    return {"id": token, "token": name, "text": spelled, "begins_word": begins}


def within(served: Served, text: str) -> Array:
    """Return the ids of a text.

    Raises:
        TooLongError: there are too many.
    """
    ids = served.trained.tokenizer.encode(text)
    if len(ids) > MOST_TOKENS:
        raise TooLongError(
            f"text: has {len(ids):,} tokens; at most {MOST_TOKENS} are looked at at once"
        )
    if not len(ids):
        raise UserError("text: is empty")
    return ids
