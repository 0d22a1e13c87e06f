"""Looking inside of models: the requests of the page's panels, each a row of results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from foreword.serving.bodies import Body

if TYPE_CHECKING:
    from foreword.serving.served import Served
    from foreword.serving.worker import RequestJob


@dataclass(frozen=True)
class Look:
    """A request of `/inspect/NAME`.

    Attributes:
        body: what it has.
        job: the work of a request, whose results are the rows of the answer; raises UserError.
        can: whether a model can do it.
        summary: what it does, for the schema.
    """

    body: type[Body]
    job: Callable[[Served, Any], RequestJob]
    can: Callable[[Served], bool]
    summary: str


LOOKS: dict[str, Look] = {}
