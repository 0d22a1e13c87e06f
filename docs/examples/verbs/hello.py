"""`foreword hello`, as an example of a verb in a plug-in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from foreword.display.results import Output, Text
from foreword.verbs._contract import ARGUMENT, Verb


@dataclass(frozen=True)
class Hello(Verb[Output]):
    """Greet somebody.

    Attributes:
        name: whom to greet.
    """

    name: Annotated[str, ARGUMENT]

    def __call__(self) -> Output:
        return Output([Text(f"Hello, {self.name}.")], {"greeted": self.name})
