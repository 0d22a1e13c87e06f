"""Token shards that are there already: their tokenizer, and whether they may stay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from foreword.data.fingerprint import fingerprint_text
from foreword.data.holdout import find_apart
from foreword.data.prepared_text import PreparedText
from foreword.data.read_documents import find_files
from foreword.data.text_files import ReadSettings
from foreword.data.write_shards import PrepareSettings, fingerprint_of
from foreword.errors import UserError
from foreword.settings import config, kinds
from foreword.text.tokenizer import Tokenizer
from foreword.text.tokenizers._contract import TokenizerKind


def trainer_of(table: dict[str, Any]) -> TokenizerKind:
    """Return the settings that a tokenizer is trained with.

    Raises:
        UserError: there are no such settings.
    """
    part = kinds.Part("text/tokenizers")
    trainer: TokenizerKind = config.build_kind(part, table, "tokenizer")
    return trainer


def existing_tokenizer(
    folder: Path,
    tokenizer: Tokenizer | TokenizerKind,
    inputs: tuple[Sequence[str], Sequence[str]],
    read: ReadSettings,
    settings: PrepareSettings,
) -> Tokenizer | TokenizerKind:
    """Return the tokenizer of the shards in a folder; `tokenizer` if there are no complete shards.

    Args:
        folder: the folder for the shards.
        tokenizer: the tokenizer, or the settings to train it with.
        inputs: the text to train on, and that to hold out, if it is given apart.
        read: how files become documents.
        settings: how documents become shards.

    Raises:
        UserError: a file is missing, or the shards are of other text, settings or tokenizer, and
            would be lost to the runs that were trained on them.
    """
    files = find_files(inputs[0], None, read)
    heldout = find_apart(inputs[1], files, None, read)
    try:
        prepared = PreparedText.load(folder, verify=False)
        existing = Tokenizer.load(prepared.tokenizer)
    except UserError:  # nothing there, or nothing whole
        return tokenizer
    if isinstance(tokenizer, Tokenizer):
        is_same = existing.fingerprint == tokenizer.fingerprint
    else:
        try:
            is_same = trainer_of(dict(existing.kind)) == tokenizer
        except UserError:  # another tool trained it
            is_same = False
    settings = replace(settings, heldout=0.0) if heldout else settings
    texts = fingerprint_text(files, read), fingerprint_text(heldout, read) if heldout else ""
    if not is_same or prepared.fingerprint != fingerprint_of(*texts, existing, settings):
        raise UserError(
            f"{folder}: holds shards of another text, tokenizer or settings, and runs trained on "
            "them need them; choose another --out, or delete the folder"
        )
    return tokenizer if isinstance(tokenizer, Tokenizer) else existing
