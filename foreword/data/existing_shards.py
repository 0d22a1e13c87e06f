"""Token shards that are there already: their tokenizer, and whether they may stay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from foreword.data.holdout import SplitFiles
from foreword.data.prepared_text import PreparedText
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
    files: SplitFiles,
    settings: PrepareSettings,
) -> Tokenizer | TokenizerKind:
    """Return the tokenizer of the shards in a folder; `tokenizer` if there are no complete shards.

    Args:
        folder: the folder for the shards.
        tokenizer: the tokenizer, or the settings to train it with.
        files: the files to train on and to hold out.
        settings: how documents become shards.

    Raises:
        UserError: the shards are of other text, settings or tokenizer, and would be lost to the
            runs that were trained on them.
    """
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
    if not is_same or prepared.fingerprint != fingerprint_of(files, existing, settings):
        raise UserError(
            f"{folder}: holds shards of another text, tokenizer or settings, and runs trained on "
            "them need them; choose another --out, or delete the folder"
        )
    return tokenizer if isinstance(tokenizer, Tokenizer) else existing
