"""What stands in a folder of token shards, and how it gets there whole.

    folder/  train.bin train.idx  heldout.bin heldout.idx  tokenizer/  prepared.json

`prepared.json` is written last and removed first: a folder without it is not finished. It says
what the shards were made from, so that they are made again whenever that changes, and never else.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foreword import atomic, config, stored
from foreword.data.shards import Shards
from foreword.data.tokenize_documents import Encoded
from foreword.errors import UserError

MANIFEST = "prepared.json"
FORMAT = 1
TRAIN, HELDOUT = "train", "heldout"
PART = ".part"  # in the folder: what is being made


@dataclass
class Split:
    """How much went to one side; `unknown` counts the tokens for what the vocabulary lacks."""

    documents: int = 0
    sequences: int = 0
    tokens: int = 0
    bytes: int = 0
    unknown: int = 0

    def add(self, found: Encoded, size: int) -> None:
        """Counts encoded documents whose text is `size` bytes."""
        self.documents += len(found.document_lengths)
        self.sequences += len(found.sequence_lengths)
        self.tokens += len(found.tokens)
        self.bytes += size
        self.unknown += found.unknown


@dataclass(frozen=True)
class _Counts:
    train: Split
    heldout: Split


@dataclass(frozen=True)
class _Manifest:
    """What `prepared.json` says, by type."""

    format: int
    fingerprint: str
    text: str
    read: dict[Any, Any]
    tokenizer: dict[Any, Any]
    settings: dict[Any, Any]
    counts: _Counts
    files: dict[Any, Any]
    checksum: str = ""


@dataclass(frozen=True)
class PreparedText:
    """Token shards and what is known of them.

    Attributes:
        folder: where they stand.
        train: the documents to train on.
        heldout: the documents to measure on.
        counts: how much is in each, `"train"` and `"heldout"`.
        manifest: all of `prepared.json`.
        reused: whether they were there already.
    """

    folder: Path
    train: Shards
    heldout: Shards
    counts: Mapping[str, Split]
    manifest: Mapping[str, Any]
    reused: bool = False

    @classmethod
    def load(cls, folder: str | Path, *, verify: bool = True, reused: bool = False) -> PreparedText:
        """Opens what `prepare` has made.

        Args:
            folder: where it stands.
            verify: whether to compare checksums, which reads the files once (0.6 GB/s or so).
            reused: what to say of it.

        Raises:
            UserError: it is not there, not finished, or not as it was written.
        """
        folder = Path(folder)
        path = folder / MANIFEST
        if not path.is_file():
            raise UserError(
                f"{folder}: no finished token shards here; 'foreword prepare' makes them"
            )
        try:
            manifest = stored.read(path)
            found = config.build(_Manifest, manifest)
        except UserError as error:
            raise UserError(f"{path}: damaged; prepare the text again") from error
        if found.format != FORMAT:
            raise UserError(
                f"{path}: of format {found.format}, not {FORMAT}; prepare the text again"
            )
        counts = {TRAIN: found.counts.train, HELDOUT: found.counts.heldout}
        for name in (f"{side}.{end}" for side in counts for end in ("bin", "idx")):
            file = found.files.get(name, {})
            is_same = _size(folder / name) == file.get("bytes")
            if not is_same or (verify and atomic.checksum(folder / name) != file.get("blake2b")):
                raise UserError(
                    f"{folder / name}: changed since it was written; prepare the text again"
                )
        train, heldout = (Shards.open(folder / name) for name in (TRAIN, HELDOUT))
        return cls(folder, train, heldout, counts, manifest, reused)

    @property
    def tokenizer(self) -> Path:
        """The folder of the tokenizer that they were made with."""
        return self.folder / "tokenizer"

    @property
    def fingerprint(self) -> str:
        """Equal for shards made from equal texts, with equal settings, by equal tokenizers."""
        return str(self.manifest["fingerprint"])

    def bytes_per_token(self, split: str = HELDOUT, *, ends: bool = False) -> float:
        """Bytes of a split's text per token, to turn nats per token into bits per byte.

        Args:
            split: "heldout" or "train".
            ends: whether the ends of documents are tokens too, which are predicted and no bytes.
        """
        counts = self.counts[split]
        return counts.bytes / max(1, counts.tokens + ends * counts.documents)


def require_free(folder: Path) -> None:
    """Makes sure that nothing stands in a folder but token shards, or what is left of making some.

    Raises:
        UserError: something else does.
    """
    atomic.require_no_device(folder)
    if not folder.is_dir() or (folder / MANIFEST).is_file():
        return
    names = {path.name for path in folder.iterdir()}
    if atomic.LOCK in names:
        names -= {atomic.LOCK, PART, f".{MANIFEST}.part"}
        shards = {f"{side}.{end}" for side in (TRAIN, HELDOUT) for end in ("bin", "idx")}
        if names & shards:
            names -= {*shards, "tokenizer"}
    if names:
        raise UserError(f"{folder}: is not empty; choose another --out")


def find(folder: Path, fingerprint: str) -> PreparedText | None:
    """What is there already, if it was made from the same and is whole."""
    try:
        found = PreparedText.load(folder, reused=True)
    except UserError:
        return None
    return found if found.fingerprint == fingerprint else None


def publish(part: Path, folder: Path, manifest: dict[str, Any]) -> None:
    """Moves what was made to its place; the manifest goes first and comes last."""
    with atomic.explained(folder):
        (folder / MANIFEST).unlink(missing_ok=True)
        for name in manifest["files"]:
            (part / name).replace(folder / name)
        shutil.rmtree(folder / "tokenizer", ignore_errors=True)
        (part / "tokenizer").replace(folder / "tokenizer")
        shutil.rmtree(part)
    stored.write(folder / MANIFEST, manifest)


def _size(path: Path) -> int | None:
    """Bytes of a file, or None where there is none."""
    return path.stat().st_size if path.is_file() else None


def data_warnings(counts: Mapping[str, Any], unknown: int = 0) -> dict[str, int]:
    """What of a text was not as it should be, and how much of it there was; nothing where none was.

    Args:
        counts: of what was read, as `prepared.json` has them.
        unknown: tokens for what the vocabulary lacks.
    """
    kinds = ", ".join(f"{count:,} {what}" for what, count in counts["skipped"].items())
    found = {
        "unknown tokens": unknown,
        "empty documents": counts["empty_documents"],
        "pairs with an empty side": counts.get("empty_sides", 0),
        "empty files": counts["empty_files"],
        "bytes replaced": counts["replaced_bytes"],
        f"files not read ({kinds})": sum(counts["skipped"].values()),
    }
    return {what: count for what, count in found.items() if count}
