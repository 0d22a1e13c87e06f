"""Whether our tokenizer and that of `transformers` cut texts alike, and wrap them alike."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foreword.errors import UserError
from foreword.text.special import ROLES
from foreword.text.tokenizer import Tokenizer

TEXTS = (
    "The cat sat on the mat.",
    "",
    " two  words\n",
    "naïve 東京 3.14 🙂",
    "l'été, (déjà)!",
)


@dataclass(frozen=True)
class Reading:
    """How theirs reads texts, held against ours.

    Attributes:
        apart: texts that it cuts into other tokens.
        bos: tokens that it puts before a text.
        eos: tokens that it puts behind one.
    """

    apart: tuple[str, ...]
    bos: tuple[int, ...]
    eos: tuple[int, ...]


def compare(tokenizer: Tokenizer, folder: Path) -> Reading:
    """Reads texts with both; some hold the names of special tokens.

    In `transformers` such a name stands for the token, as in our prompts. With
    `split_special_tokens=True` it is text, as in our corpora.

    Args:
        tokenizer: ours.
        folder: of theirs.

    Raises:
        UserError: `transformers` cannot read its tokenizer.
    """
    import transformers

    try:
        theirs: Any = transformers.AutoTokenizer.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
    except Exception as error:  # whatever its readers raise
        reason = " ".join(str(error).split())
        raise UserError(f"{folder}: transformers cannot read its tokenizer: {reason}") from error
    names = dict.fromkeys(filter(None, map(tokenizer.name_of, ROLES.values())))
    sentinels = [tokenizer.pieces[i] for i in tokenizer.vocab.sentinels[:1]]
    named = (f"the{gap}{name}{gap}cat" for name in (*names, *sentinels) for gap in ("", " "))

    def cut(text: str) -> list[int]:
        return list(theirs(text, add_special_tokens=False)["input_ids"])

    apart = [
        text
        for text in (*TEXTS, *named)
        if cut(text) != tokenizer.encode(text, special=True).tolist()
    ]
    text = TEXTS[0]
    inside, whole = cut(text), list(theirs(text)["input_ids"])
    begins = [n for n in range(len(whole)) if whole[n : n + len(inside)] == inside]
    begin = begins[0] if begins else 0
    return Reading(tuple(apart), tuple(whole[:begin]), tuple(whole[begin + len(inside) :]))
