"""Comparing our tokenizer with that of `transformers`: the same tokens, the same special tokens."""

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
class TokenizerComparison:
    """Differences of the tokenizer of `transformers` from ours, and its wrapping of a text.

    Attributes:
        differing: texts that it cuts into other tokens.
        bos: tokens that it puts before a text.
        eos: tokens that it puts after a text.
    """

    differing: tuple[str, ...]
    bos: tuple[int, ...]
    eos: tuple[int, ...]


def compare(tokenizer: Tokenizer, folder: Path) -> TokenizerComparison:
    """Tokenize texts with both tokenizers; some texts hold the names of special tokens.

    In `transformers` such a name stands for the token, as in our prompts. With
    `split_special_tokens=True` it is text, as in our corpora.

    Args:
        tokenizer: ours.
        folder: the folder whose tokenizer `transformers` reads.

    Raises:
        UserError: `transformers` cannot read the tokenizer.
    """
    # Load their tokenizer.
    import transformers

    try:
        theirs: Any = transformers.AutoTokenizer.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
    except Exception as error:  # transformers' readers raise errors of any type
        reason = " ".join(str(error).split())
        raise UserError(f"{folder}: transformers cannot read its tokenizer: {reason}") from error
    # Texts that hold the names of special tokens, and the first sentinel's.
    names = dict.fromkeys(filter(None, map(tokenizer.name_of, ROLES.values())))
    sentinels = [tokenizer.pieces[i] for i in tokenizer.vocab.sentinels[:1]]
    named = (f"the{gap}{name}{gap}cat" for name in (*names, *sentinels) for gap in ("", " "))

    def cut(text: str) -> list[int]:
        return list(theirs(text, add_special_tokens=False)["input_ids"])

    differing = [
        text
        for text in (*TEXTS, *named)
        if cut(text) != tokenizer.encode(text, special=True).tolist()
    ]
    # The special tokens that it adds around a text.
    text = TEXTS[0]
    bare, wrapped = cut(text), list(theirs(text)["input_ids"])
    starts = [n for n in range(len(wrapped)) if wrapped[n : n + len(bare)] == bare]
    start = starts[0] if starts else 0
    bos, eos = wrapped[:start], wrapped[start + len(bare) :]
    return TokenizerComparison(tuple(differing), tuple(bos), tuple(eos))
