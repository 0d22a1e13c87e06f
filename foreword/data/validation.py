"""A validation part of training shards: what is tuned on it leaves the held-out text untouched."""

from __future__ import annotations

import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from foreword.data.fingerprint import digest
from foreword.data.holdout import cut_sequences, hash_to_unit, hold_out
from foreword.data.prepared_text import HELDOUT, TRAIN, PreparedText, Split, find_or_make
from foreword.data.shard_writer import ShardWriter
from foreword.data.shards import Shards
from foreword.disk import atomic
from foreword.errors import UserError
from foreword.types import Array

SHARE = 0.05  # of the training tokens
MOST = 1 << 16  # tokens
VERSION = 1


def split_validation(prepared: PreparedText, folder: Path) -> PreparedText:
    """Make shards whose held-out side is drawn from the training documents, or reuse them.

    The documents whose tokens have the lowest hashes are drawn, until they hold 5 % of the tokens
    or 65,536, whichever is less; equal documents land on the same side. Of a document longer than
    that, only the last sentences are drawn. The rest is the training side.

    Args:
        prepared: shards, whose held-out side is not read.
        folder: where to write; the training tokens are copied.

    Raises:
        UserError: the folder holds something else or cannot be written, or the text is a single
            sentence.
    """
    fingerprint = digest([VERSION, "validation", prepared.fingerprint])

    def make(part: Path) -> dict[str, Any]:
        shards = prepared.train
        cuts = _cuts(shards, is_parallel=bool(prepared.manifest["read"].get("target")))
        with atomic.user_errors(folder):
            shutil.copytree(prepared.tokenizer, part / "tokenizer")
        vocab = int(prepared.manifest["tokenizer"]["vocab"])
        train, heldout = (ShardWriter(part / name, vocab) for name in (TRAIN, HELDOUT))
        with train, heldout:
            parts = {index: cut_sequences(shards, index, n) for index, n in cuts.items()}
            hold_out(shards, parts, train, heldout)
        counts = {name: _count(part / name, prepared) for name in (TRAIN, HELDOUT)}
        manifest = {key: v for key, v in prepared.manifest.items() if key != "checksum"}
        facts = {"fingerprint": fingerprint, "counts": counts}
        return {**manifest, **facts, "files": train.files | heldout.files}

    return find_or_make(folder, fingerprint, make)


def _cuts(shards: Shards, *, is_parallel: bool) -> dict[int, int]:
    """Return the documents to draw, each with the number of its sequences to train on."""
    target = min(MOST, SHARE * shards.tokens_total)
    starts = shards.document_starts
    lengths: Array = np.diff(starts)
    is_whole = (lengths <= target) | (np.diff(shards.document_index) < 2) | is_parallel
    # The order: by hash, first those that can be drawn without drawing too much.
    order = np.full(len(shards), 3.0)  # of empty documents, which are never drawn
    for index in map(int, np.flatnonzero(lengths)):
        tokens = shards.tokens[slice(*starts[index : index + 2])]
        order[index] = hash_to_unit(tokens.tobytes())
        order[index] += bool(is_whole[index] and lengths[index] > target)
    # Draw until there is enough, and then the copies of the last one.
    cuts: dict[int, int] = {}
    drawn, last = 0, -1.0
    for index in map(int, np.argsort(order, kind="stable")):
        if order[index] > 2 or (drawn >= target and order[index] != last):
            break
        cuts[index] = 0 if is_whole[index] else _first_held(shards, index, target)
        first = shards.document_index[index] + cuts[index]
        drawn += int(starts[index + 1] - shards.sequence_starts[first])
        last = order[index]
    if drawn >= shards.tokens_total:
        raise UserError(
            f"{shards.prefix}: too little text for a validation part: its documents are all the "
            "same, or it is a single sentence; give more text, or leave the sweep out"
        )
    return cuts


def _first_held(shards: Shards, index: int, target: float) -> int:
    """Return how many sequences of a document come before its last `target` tokens or more."""
    first, end = shards.document_index[index : index + 2]
    starts = shards.sequence_starts[first : end + 1]
    return int(np.searchsorted(starts, starts[-1] - target, side="right")) - 1


def _count(prefix: Path, prepared: PreparedText) -> dict[str, int]:
    """Return the size of a side; its bytes and unknown tokens are in proportion to its tokens."""
    shards, whole = Shards.open(prefix), prepared.counts[TRAIN]
    share = shards.tokens_total / max(1, whole.tokens)
    sizes = len(shards), len(shards.sequence_lengths), shards.tokens_total
    return asdict(Split(*sizes, round(share * whole.bytes), round(share * whole.unknown)))
