"""The pieces of words, and the merges that made them."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from foreword.errors import TooLongError
from foreword.serving.bodies import Body
from foreword.serving.looks._look import Compute, Look
from foreword.serving.served import Served

MOST_CHARACTERS = 4096  # of a text whose pieces are shown


@dataclass(frozen=True, kw_only=True)
class PiecesBody(Body):
    """A text whose words are cut into pieces.

    Attributes:
        text: the text, of at most 4,096 characters.
    """

    text: str


def _pieces(served: Served, body: PiecesBody) -> Compute:
    if len(body.text) > MOST_CHARACTERS:
        raise TooLongError(f"text: has {len(body.text):,} characters; at most {MOST_CHARACTERS:,}")
    tokenizer = served.trained.tokenizer
    return lambda: {"words": [asdict(cut) for cut in tokenizer.cuts(body.text)]}


PIECES = Look(
    PiecesBody, _pieces, lambda served: served.trained, "Show how words were cut into pieces"
)
