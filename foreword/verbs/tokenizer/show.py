"""`foreword tokenizer show`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from foreword.display.results import Facts, Output, Part, TokenRow
from foreword.verbs._contract import ARGUMENT, PathName
from foreword.verbs.tokenizer._contract import TokenizerVerb, facts_of, shown_facts, some_pieces

if TYPE_CHECKING:
    from foreword.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Show(TokenizerVerb):
    """Show a tokenizer: its size, special tokens, some pieces, and how it splits a text.

    Attributes:
        folder: a tokenizer folder, or a tokenizer.json.
        text: a text to tokenize.
    """

    folder: Annotated[PathName, ARGUMENT]
    text: str | None = None

    def __call__(self) -> Output:
        from foreword.text.tokenizer import Tokenizer

        tokenizer = Tokenizer.load(Path(self.folder))
        facts, pieces = facts_of(tokenizer), some_pieces(tokenizer)
        parts: list[Part] = [shown_facts(tokenizer, facts), TokenRow("some pieces", pieces)]
        if self.text is None:
            return Output(parts, facts | {"pieces": pieces})
        split = _split(tokenizer, self.text)
        ids = " ".join(map(str, split["ids"]))
        parts += [
            TokenRow("the text", split["tokens"]),
            Facts({"ids": ids, "decoded": split["decoded"]}),
            Facts({"tokens": len(split["ids"]), "bytes per token": split["bytes_per_token"]}),
        ]
        return Output(parts, facts | {"pieces": pieces} | split)


def _split(tokenizer: Tokenizer, text: str) -> dict[str, Any]:
    ids = tokenizer.encode(text, special=True).tolist()
    return {
        "tokens": [tokenizer.token(i) for i in ids],
        "ids": ids,
        "decoded": tokenizer.decode(ids, skip_special=False),
        "bytes_per_token": len(text.encode()) / len(ids) if ids else None,
    }
