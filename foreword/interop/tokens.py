"""Tokenizers both ways: whose token is our [MASK], and what stands around a text."""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foreword import manifest, stored
from foreword.errors import UserError
from foreword.interop.hf._contract import Family
from foreword.text.special import ROLES
from foreword.text.tokenizer import CONFIG, FILE, Tokenizer

MAP = "special_tokens_map.json"
SLOW = ("vocab.txt", "vocab.json", "spiece.model", "sentencepiece.bpe.model", "tokenizer.model")


def has_tokenizer(folder: Path) -> bool:
    """Whether a folder holds a tokenizer."""
    return any((folder / name).is_file() for name in (FILE, *SLOW))


def read(folder: Path, family: Family, size: int) -> Tokenizer:
    """The tokenizer in a folder, its vocabulary as large as the embedding.

    Args:
        folder: with `tokenizer.json`, or files that `transformers` makes one of.
        family: says which special tokens it has where the folder does not.
        size: rows of the embedding.

    Raises:
        UserError: there is none, it is broken, or has more tokens than the embedding has rows.
    """
    if not (folder / FILE).is_file():
        with tempfile.TemporaryDirectory() as made:
            _convert(folder, Path(made))
            return read(Path(made), family, size)
    roles = {**family.roles, **_roles(folder / MAP)}
    tokenizer = Tokenizer.load(folder, roles, size)
    if tokenizer.vocab.size > size:
        raise UserError(
            f"{folder / FILE}: has {tokenizer.vocab.size:,} tokens, and the embedding has "
            f"{size:,} rows; they are of different models"
        )
    return tokenizer


def _roles(file: Path) -> dict[str, str]:
    """Special tokens by role, from the file that older folders have beside."""
    if not file.is_file():
        return {}
    try:
        table = json.loads(file.read_text(encoding="utf-8"))
        tokens = {role: table[role] for role in ROLES if table.get(role)}
    except (ValueError, TypeError, AttributeError) as error:
        raise UserError(f"{file}: cannot be read: {error}") from error
    return {r: t["content"] if isinstance(t, dict) else str(t) for r, t in tokens.items()}


def _convert(folder: Path, made: Path) -> None:
    """Has `transformers` make a `tokenizer.json` of what older folders have.

    Raises:
        UserError: there is nothing to make one of, or no `transformers` to do it.
    """
    slow = [name for name in SLOW if (folder / name).is_file()]
    if not slow:
        raise UserError(f"{folder}: holds no {FILE}, so texts cannot be cut into its tokens")
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        raise UserError(
            f"{folder}: holds {slow[0]} and no {FILE}; transformers makes one of the other: "
            "pip install 'foreword[hf]'"
        ) from error
    try:
        slow_one = AutoTokenizer.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
        slow_one.save_pretrained(made)
    except Exception as error:  # whatever a reader of an unknown file raises
        reason = " ".join(str(error).split())
        raise UserError(f"{folder}: no {FILE} can be made of {slow[0]}: {reason}") from error
    if not (made / FILE).is_file():
        raise UserError(f"{folder}: transformers makes no {FILE} of {slow[0]}")


@dataclass(frozen=True)
class TokenizerUse:
    """How a model reads what its tokenizer makes of texts.

    Attributes:
        around: the special tokens that it saw before and after a text, "" for none.
        opening: the one that a text to be written begins with, "" for none.
        segments: how many it tells apart.
        limit: the most tokens it can read, or None.
    """

    around: tuple[str, str]
    opening: str
    segments: int
    limit: int | None


def write(tokenizer: Tokenizer, use: TokenizerUse, out: Path) -> None:
    """Writes a tokenizer into the folder `out` as `transformers` reads it."""
    tokenizer.save(out)
    (out / manifest.FILE).unlink()  # of what is about to be changed
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
    begins = names.get(use.opening)
    if begins is not None and config.get("bos_token") != begins:
        config["foreword"]["roles"] = {"bos_token": config.get("bos_token")}
        config["bos_token"] = begins
    roles = {role: config[role] for role in ROLES if config.get(role)}
    _write(file, config)
    _write(out / MAP, roles)
    parts: dict[str, Any] = json.loads((out / FILE).read_text(encoding="utf-8"))
    if parts.get("post_processor") is None and any(use.around):
        before, after = (
            (names[name], tokenizer.vocab.id(name)) if name else None for name in use.around
        )
        parts["post_processor"] = _template(before, after)
        _write(out / FILE, parts)


def _template(before: tuple[str | None, int] | None, after: tuple[str | None, int] | None) -> Any:
    """The part of a `tokenizer.json` that puts special tokens around one text and two."""

    def piece(token: tuple[str | None, int] | None, segment: int) -> list[Any]:
        return [{"SpecialToken": {"id": token[0], "type_id": segment}}] if token else []

    def text(name: str, segment: int) -> Any:
        return {"Sequence": {"id": name, "type_id": segment}}

    single = [*piece(before, 0), text("A", 0), *piece(after, 0)]
    special = {
        name: {"id": name, "ids": [i], "tokens": [name]}
        for name, i in (token for token in (before, after) if token)
    }
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, text("B", 1), *piece(after, 1)],
        "special_tokens": special,
    }


def _write(file: Path, value: Any) -> None:
    file.write_text(stored.to_json(value, indent=2) + "\n", encoding="utf-8")
