"""Importing and exporting tokenizers, and comparing ours with that of `transformers`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foreword.disk import atomic, manifest, stored
from foreword.errors import UserError
from foreword.interop.check_logits import transformers_errors
from foreword.interop.hf._contract import Family
from foreword.text.special import ROLES
from foreword.text.tokenizer import CONFIG, FILE, Tokenizer

SPECIAL_TOKENS_MAP = "special_tokens_map.json"
SLOW_TOKENIZER_FILES = (
    "vocab.txt",
    "vocab.json",
    "spiece.model",
    "sentencepiece.bpe.model",
    "tokenizer.model",
)
TEXTS = (
    "The cat sat on the mat.",
    "",
    " two  words\n",
    "naïve 東京 3.14 🙂",
    "l'été, (déjà)!",
)


def has_tokenizer(folder: Path) -> bool:
    """Return whether a folder holds a tokenizer."""
    return any((folder / name).is_file() for name in (FILE, *SLOW_TOKENIZER_FILES))


def read(folder: Path, family: Family, size: int) -> Tokenizer:
    """Return the tokenizer in a folder, its vocabulary as large as the embedding.

    Args:
        folder: a folder with `tokenizer.json`, or files that `transformers` can convert to it.
        family: names the special tokens that the folder's files do not name.
        size: the number of rows of the embedding.

    Raises:
        UserError: there is none, it is broken, or has more tokens than the embedding has rows.
    """
    if not (folder / FILE).is_file():
        with atomic.temporary_folder() as made:
            _convert(folder, made)
            return read(made, family, size)
    roles = {**family.names.roles, **_roles(folder / SPECIAL_TOKENS_MAP)}
    tokenizer = Tokenizer.load(folder, roles, size)
    if tokenizer.vocab.size > size:
        raise UserError(
            f"{folder / FILE}: has {tokenizer.vocab.size:,} tokens, but the embedding has only "
            f"{size:,} rows; they belong to different models"
        )
    return tokenizer


def _roles(file: Path) -> dict[str, str]:
    """Return special tokens by role, from a file that older folders have."""
    if not file.is_file():
        return {}
    table = stored.read(file, is_foreign=True)
    tokens = {role: table[role] for role in ROLES if table.get(role)}
    return {r: t["content"] if isinstance(t, dict) else str(t) for r, t in tokens.items()}


def _convert(folder: Path, made: Path) -> None:
    """Convert the tokenizer files of older folders to a `tokenizer.json` with `transformers`."""
    slow = [name for name in SLOW_TOKENIZER_FILES if (folder / name).is_file()]
    if not slow:
        raise UserError(f"{folder}: holds no {FILE}, so texts cannot be tokenized")
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        raise UserError(
            f"{folder}: holds {slow[0]} but no {FILE}; converting it requires transformers: "
            "pip install 'foreword[hf]'"
        ) from error
    with transformers_errors(f"{folder}: {slow[0]} cannot be converted to {FILE}"):
        tokenizer = AutoTokenizer.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
        tokenizer.save_pretrained(made)
    if not (made / FILE).is_file():
        raise UserError(f"{folder}: transformers does not convert {slow[0]} to {FILE}")


@dataclass(frozen=True)
class TokenizerUse:
    """The form in which a model expects tokenized texts.

    Attributes:
        bos_and_eos: the special tokens before and after a text in training, "" for none.
        prompt_prefix: the special token that generation begins with, "" for none.
        segments: the number of segments.
        limit: the most tokens it can read, or None.
        padding_side: where `transformers` pads texts.
    """

    bos_and_eos: tuple[str, str]
    prompt_prefix: str
    segments: int
    limit: int | None
    padding_side: str = "right"


def write(tokenizer: Tokenizer, use: TokenizerUse, out: Path) -> None:
    """Write a tokenizer into the folder `out` as `transformers` reads it."""
    # Our own files, without the checksums of what is changed below.
    tokenizer.save(out)
    (out / manifest.FILE).unlink()
    # The model's inputs and limit, and the token that generation begins with.
    names = {name: tokenizer.name_of(name) for name in ROLES.values()}
    file = out / CONFIG
    config: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    config["model_input_names"] = [
        "input_ids",
        *(["token_type_ids"] if use.segments > 1 else []),
        "attention_mask",
    ]
    if use.limit is not None:
        config["model_max_length"] = use.limit
    if use.padding_side != "right":
        config["padding_side"] = use.padding_side
    begins = names.get(use.prompt_prefix)
    if begins is not None and config.get("bos_token") != begins:
        config["foreword"]["roles"] = {"bos_token": config.get("bos_token")}
        config["bos_token"] = begins
    roles = {role: config[role] for role in ROLES if config.get(role)}
    _write(file, config)
    _write(out / SPECIAL_TOKENS_MAP, roles)
    # The special tokens that `transformers` puts around a text.
    parts: dict[str, Any] = json.loads((out / FILE).read_text(encoding="utf-8"))
    if parts.get("post_processor") is None and any(use.bos_and_eos):
        bos, eos = ([tokenizer.vocab.id(name)] if name else [] for name in use.bos_and_eos)
        write_template(tokenizer, bos, eos, eos, out)


def write_chat_template(template: str, out: Path) -> None:
    """Let the tokenizer in `out` have this template of conversations, in Jinja."""
    config: dict[str, Any] = json.loads((out / CONFIG).read_text(encoding="utf-8"))
    _write(out / CONFIG, config | {"chat_template": template})


def write_template(
    tokenizer: Tokenizer,
    prefix: Sequence[int],
    separator: Sequence[int],
    suffix: Sequence[int],
    out: Path,
) -> None:
    """Let the tokenizer in `out` put these special tokens around a text, and into a pair.

    Args:
        tokenizer: names the tokens.
        prefix: ids before a text or a pair.
        separator: ids between the texts of a pair, in the first one's segment.
        suffix: ids after a text or a pair.
        out: a folder that `write` wrote.
    """
    names = {i: tokenizer.token(i) for i in (*prefix, *separator, *suffix)}

    def pieces(ids: Sequence[int], segment: int) -> list[Any]:
        return [{"SpecialToken": {"id": names[i], "type_id": segment}} for i in ids]

    def text(name: str, segment: int) -> Any:
        return {"Sequence": {"id": name, "type_id": segment}}

    parts: dict[str, Any] = json.loads((out / FILE).read_text(encoding="utf-8"))
    parts["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [*pieces(prefix, 0), text("A", 0), *pieces(suffix, 0)],
        "pair": [
            *pieces(prefix, 0),
            text("A", 0),
            *pieces(separator, 0),
            text("B", 1),
            *pieces(suffix, 1),
        ],
        "special_tokens": {
            name: {"id": name, "ids": [i], "tokens": [name]} for i, name in names.items()
        },
    }
    _write(out / FILE, parts)


def _write(file: Path, value: Any) -> None:
    file.write_text(stored.to_json(value, indent=2) + "\n", encoding="utf-8")


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

    with transformers_errors(f"{folder}: transformers cannot read its tokenizer"):
        theirs: Any = transformers.AutoTokenizer.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
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
