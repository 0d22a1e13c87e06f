"""Text files to token shards, once: read, split into training and held-out, encode, write.

See `foreword.data.prepared_text` for the resulting folder.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from foreword.data.fingerprint import digest, file_state
from foreword.data.holdout import SplitFiles
from foreword.data.prepared_text import (
    FORMAT,
    HELDOUT,
    TRAIN,
    PreparedText,
    find_or_make,
)
from foreword.data.shard_builder import Progress, ShardBuilder
from foreword.data.tokenize_documents import Cut
from foreword.errors import UserError
from foreword.process import allocator
from foreword.process.cluster import Cluster
from foreword.settings.ranges import PositiveShare, Ranged, ShareBelowOne, Workers
from foreword.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class PrepareSettings(Ranged):
    """How documents become token shards.

    Attributes:
        heldout: share of the documents that is held out and never trained on; 0 for none.
        train_share: share of the others that is trained on, chosen by hash: what a smaller share
            has, a larger one has too.
        repeated: share of what is trained on whose documents are written 1 / `repeated` times, so
            that they are half of the text: what duplicates do, in an experiment.
        sentences: whether a sequence is a sentence; else it is a whole document. In parallel text
            it is one side of a pair.
        workers: processes that encode; 0 for one per core. The shards do not depend on it.
    """

    heldout: ShareBelowOne = 0.005
    train_share: PositiveShare = 1.0
    repeated: PositiveShare = 1.0
    sentences: bool = True
    workers: Workers = 0

    @property
    def of_training(self) -> dict[str, float]:
        """The settings of what is trained on alone, by name; without defaults."""
        known = {"train_share": self.train_share, "repeated": self.repeated}
        return {name: share for name, share in known.items() if share < 1}


def prepare(
    files: SplitFiles,
    tokenizer: Tokenizer,
    folder: str | Path,
    settings: PrepareSettings | None = None,
    progress: Progress | None = None,
    cluster: Cluster | None = None,
) -> PreparedText:
    """Make token shards of text files, or reuse those made before.

    Without files to hold out, documents whose text has a low hash are held out, about
    `settings.heldout` of them; equal texts land on the same side. If that holds out none or all,
    the document with the lowest hash is held out if it is at most a tenth of the text; of a longer
    one, such as the only one, its last sentences are, about that share of the text. The shards
    depend only on the files' bytes, the settings and the tokenizer, not on the number of workers.

    Args:
        files: the files to train on and to hold out.
        tokenizer: text to ids; it is saved with the shards.
        folder: where to write.
        settings: how documents become shards.
        progress: called with the bytes of the files done and their total, from time to time.
        cluster: encodes in place of this machine's processes; the shards do not depend on it.

    Raises:
        UserError: a file cannot be read, the folder holds something else or cannot be written, or
            there is too little text.
    """
    settings, read, folder = settings or PrepareSettings(), files.read, Path(folder)
    heldout = 0.0 if files.heldout else settings.heldout
    counts = deepcopy(files.counts)
    fingerprint = fingerprint_of(files, tokenizer, settings)

    def make(part: Path) -> dict[str, Any]:
        tokenizer.save(part / "tokenizer")
        cut: Cut = "lines" if read.target else "sentences" if settings.sentences else "documents"
        total = sum(size for size, _ in files.states.values())
        builder = ShardBuilder(
            *(part, tokenizer, cut, heldout, settings.train_share, settings.repeated),
            *(settings.workers, progress, total, cluster),
        )
        with allocator.returning_freed():
            builder.encode({TRAIN: files.train, HELDOUT: files.heldout}, read, counts)
            builder.ensure_split()
        for file, state in files.states.items():
            if file_state(file) != state:
                raise UserError(f"{file}: changed while it was read; prepare it again")
        return {
            "format": FORMAT,
            "fingerprint": fingerprint,
            "text": files.fingerprints[0],
            "text_blake2b": builder.text.hexdigest(),
            "read": {**asdict(read), "counts": asdict(counts)},
            "tokenizer": {"fingerprint": tokenizer.fingerprint, "vocab": tokenizer.vocab.size},
            "settings": {"heldout": heldout, "sentences": settings.sentences}
            | settings.of_training,
            "counts": {name: asdict(split) for name, split in builder.counts.items()},
            "files": builder.files,
        }

    return find_or_make(folder, fingerprint, make)


def fingerprint_of(files: SplitFiles, tokenizer: Tokenizer, settings: PrepareSettings) -> str:
    """Return the fingerprint of shards, equal for equal texts, settings and tokenizers."""
    text, heldout_text = files.fingerprints
    share = 0.0 if files.heldout else settings.heldout
    parts = [FORMAT, text, tokenizer.fingerprint, share, settings.sentences]
    if settings.of_training:
        parts.append(settings.of_training)
    return digest([*parts, heldout_text] if heldout_text else parts)
