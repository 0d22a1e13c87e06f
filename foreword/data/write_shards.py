"""Text files to token shards, once: read, split into training and held-out, encode, write.

See `foreword.data.prepared_text` for the resulting folder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from foreword.data import holdout
from foreword.data.fingerprint import digest, file_state, fingerprint_text
from foreword.data.prepared_text import (
    FORMAT,
    HELDOUT,
    TRAIN,
    PreparedText,
    find_or_make,
)
from foreword.data.read_documents import find_files
from foreword.data.shard_builder import Progress, ShardBuilder
from foreword.data.text_files import ReadCounts, ReadSettings
from foreword.data.tokenize_documents import Cut
from foreword.errors import UserError
from foreword.process import allocator
from foreword.process.cluster import Cluster
from foreword.settings.ranges import Ranged, ShareBelowOne, Workers
from foreword.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class PrepareSettings(Ranged):
    """How documents become token shards.

    Attributes:
        heldout: share of the documents that is held out and never trained on; 0 for none.
        sentences: whether a sequence is a sentence; else it is a whole document. In parallel text
            it is one side of a pair.
        workers: processes that encode; 0 for one per core. The shards do not depend on it.
    """

    heldout: ShareBelowOne = 0.005
    sentences: bool = True
    workers: Workers = 0


def prepare(
    inputs: Sequence[str | Path],
    tokenizer: Tokenizer,
    folder: str | Path,
    settings: PrepareSettings | None = None,
    read: ReadSettings | None = None,
    progress: Progress | None = None,
    heldout: Sequence[str | Path] = (),
    cluster: Cluster | None = None,
) -> PreparedText:
    """Make token shards of text files, or reuse those made before.

    Without text given as `heldout`, documents whose text has a low hash are held out, about
    `settings.heldout` of them; equal texts land on the same side. If that holds out none or all,
    the document with the lowest hash is held out if it is at most a tenth of the text; of a longer
    one, such as the only one, its last sentences are, about that share of the text. The shards
    depend only on the files' bytes, the settings and the tokenizer, not on the number of workers.

    Args:
        inputs: files, folders and patterns.
        tokenizer: text to ids; it is saved with the shards.
        folder: where to write.
        settings: how documents become shards.
        read: how files become documents.
        progress: called with the bytes of the files done and their total, from time to time.
        heldout: files, folders and patterns to hold out; then all of `inputs` is trained on.
        cluster: encodes in place of this machine's processes; the shards do not depend on it.

    Raises:
        UserError: a file cannot be read, the folder holds something else or cannot be written, or
            there is too little text.
    """
    # Find the files of both sides.
    settings, read, folder = settings or PrepareSettings(), read or ReadSettings(), Path(folder)
    counts = ReadCounts()
    files = find_files(inputs, counts, read)
    heldout_files = holdout.find_apart(heldout, files, counts, read)
    if heldout_files:
        settings = replace(settings, heldout=0.0)
    states = {file: file_state(file) for file in [*files, *heldout_files]}
    # Reuse shards of the same text, settings and tokenizer, or build them.
    text = fingerprint_text(files, read)
    heldout_text = fingerprint_text(heldout_files, read) if heldout_files else ""
    fingerprint = fingerprint_of(text, heldout_text, tokenizer, settings)

    def make(part: Path) -> dict[str, Any]:
        tokenizer.save(part / "tokenizer")
        cut: Cut = "lines" if read.target else "sentences" if settings.sentences else "documents"
        total = sum(size for size, _ in states.values())
        builder = ShardBuilder(
            part, tokenizer, cut, settings.heldout, settings.workers, progress, total, cluster
        )
        with allocator.returning_freed():
            builder.encode({TRAIN: files, HELDOUT: heldout_files}, read, counts)
            builder.ensure_split()
        _require_unchanged(states)
        return {
            "format": FORMAT,
            "fingerprint": fingerprint,
            "text": text,
            "read": {**asdict(read), "counts": asdict(counts)},
            "tokenizer": {"fingerprint": tokenizer.fingerprint, "vocab": tokenizer.vocab.size},
            "settings": {"heldout": settings.heldout, "sentences": settings.sentences},
            "counts": {name: asdict(split) for name, split in builder.counts.items()},
            "files": builder.files,
        }

    return find_or_make(folder, fingerprint, make)


def _require_unchanged(states: Mapping[Path, tuple[int, int]]) -> None:
    """Check that the files still have these states."""
    for file, state in states.items():
        if file_state(file) != state:
            raise UserError(f"{file}: changed while it was read; prepare it again")


def fingerprint_of(
    text: str, heldout_text: str, tokenizer: Tokenizer, settings: PrepareSettings
) -> str:
    """Return the fingerprint of shards, equal for equal texts, settings and tokenizers.

    Args:
        text: the fingerprint of the files to train on.
        heldout_text: of those to hold out; "" if documents of `text` are.
        tokenizer: text to ids.
        settings: how documents become shards; no share is held out if files are.
    """
    parts = [FORMAT, text, tokenizer.fingerprint, settings.heldout, settings.sentences]
    return digest([*parts, heldout_text] if heldout_text else parts)
