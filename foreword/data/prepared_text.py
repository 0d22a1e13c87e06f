"""The folder of token shards, and how it is published whole.

    folder/  train.bin train.idx  heldout.bin heldout.idx  tokenizer/  prepared.json

`prepared.json` is written last and removed first: a folder without it is not finished. It records
what the shards were made from, so that they are made again exactly when that changes.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from foreword.data.fingerprint import digest
from foreword.data.remote_tokens import SUFFIX, TokensAt
from foreword.data.shards import Shards
from foreword.data.text_files import sum_counts
from foreword.data.tokenize_documents import Encoded
from foreword.disk import atomic, stored
from foreword.errors import UserError
from foreword.settings import config

MANIFEST = "prepared.json"
FORMAT = 1
TRAIN, HELDOUT = "train", "heldout"
PART = ".part"  # in the folder: unfinished shards
_OF_SOURCE = ("fingerprint", "text_blake2b", "read", "counts")  # what a mixture records of each


@dataclass
class Split:
    """The size of one side of the split; `unknown` counts its unknown tokens."""

    documents: int = 0
    sequences: int = 0
    tokens: int = 0
    bytes: int = 0
    unknown: int = 0

    def add(self, encoded: Encoded, size: int) -> None:
        """Count encoded documents whose text is `size` bytes."""
        self.documents += len(encoded.document_lengths)
        self.sequences += len(encoded.sequence_lengths)
        self.tokens += len(encoded.tokens)
        self.bytes += size
        self.unknown += encoded.unknown

    @classmethod
    def sum(cls, splits: Sequence[Split]) -> Split:
        """Return the size of several together."""
        names = [f.name for f in fields(cls)]
        return cls(*(sum(getattr(split, name) for split in splits) for name in names))


@dataclass(frozen=True)
class _Counts:
    train: Split
    heldout: Split


@dataclass(frozen=True)
class _Manifest:
    """The fields of `prepared.json`."""

    format: int
    fingerprint: str
    text: str
    read: dict[Any, Any]
    tokenizer: dict[Any, Any]
    settings: dict[Any, Any]
    counts: _Counts
    files: dict[Any, Any]
    text_blake2b: str = ""
    checksum: str = ""


@dataclass(frozen=True)
class PreparedText:
    """Token shards with their manifest.

    Attributes:
        folder: their folder.
        train: the documents to train on.
        heldout: the held-out documents.
        counts: the size of each, `"train"` and `"heldout"`.
        manifest: all of `prepared.json`.
        reused: whether they existed already.
        sources: the shards of each source of a mixture, by name; empty without a mixture.
    """

    folder: Path
    train: Shards
    heldout: Shards
    counts: Mapping[str, Split]
    manifest: Mapping[str, Any]
    reused: bool = False
    sources: Mapping[str, PreparedText] = field(default_factory=dict)

    @classmethod
    def load(cls, folder: str | Path, *, verify: bool = True, reused: bool = False) -> PreparedText:
        """Open the shards that `prepare` has made.

        Args:
            folder: their folder.
            verify: whether to compare checksums, which reads the files once (about 0.6 GB/s).
            reused: the value of the attribute.

        Raises:
            UserError: they are missing, unfinished or damaged.
        """
        folder = Path(folder)
        path = folder / MANIFEST
        if not path.is_file():
            raise UserError(
                f"{folder}: no finished token shards here; 'foreword prepare' makes them"
            )
        try:
            manifest = stored.read(path)
            fields = config.build(_Manifest, manifest)
        except UserError as error:
            raise UserError(f"{path}: damaged; prepare the text again") from error
        if fields.format != FORMAT:
            raise UserError(
                f"{path}: of format {fields.format}, not {FORMAT}; prepare the text again"
            )
        counts = {TRAIN: fields.counts.train, HELDOUT: fields.counts.heldout}
        for name in (f"{side}.{end}" for side in counts for end in ("bin", "idx")):
            file = fields.files.get(name, {})
            elsewhere = (folder / name).with_suffix(SUFFIX)
            if not (folder / name).exists() and elsewhere.is_file():
                if TokensAt.read(elsewhere).bytes != file.get("bytes"):
                    raise UserError(f"{TokensAt.read(elsewhere).url}: not as it was written")
                continue  # read block by block, so never compared as a whole
            is_same = _size(folder / name) == file.get("bytes")
            if not is_same or (verify and atomic.checksum(folder / name) != file.get("blake2b")):
                raise UserError(
                    f"{folder / name}: changed since it was written; prepare the text again"
                )
        train, heldout = (Shards.open(folder / name) for name in (TRAIN, HELDOUT))
        return cls(folder, train, heldout, counts, manifest, reused)

    @classmethod
    def mixture(cls, folder: Path, sources: Mapping[str, PreparedText]) -> PreparedText:
        """Return the shards of several sources as one; their tokens stay where they are.

        Args:
            folder: names them in messages.
            sources: the sources by name, made with one tokenizer.
        """
        prepared = list(sources.values())
        counts = {
            side: Split.sum([source.counts[side] for source in prepared])
            for side in (TRAIN, HELDOUT)
        }
        manifests = [source.manifest for source in prepared]
        fingerprint = digest([[name, source.fingerprint] for name, source in sources.items()])
        manifest = {
            "fingerprint": fingerprint,
            "read": {"counts": sum_counts([m["read"]["counts"] for m in manifests])},
            "tokenizer": manifests[0]["tokenizer"],
            "counts": {side: asdict(split) for side, split in counts.items()},
            "sources": {
                name: {
                    "shards": str(source.folder),
                    **{k: source.manifest.get(k) for k in _OF_SOURCE},
                }
                for name, source in sources.items()
            },
        }
        train = Shards.chain(folder / TRAIN, [source.train for source in prepared])
        heldout = Shards.chain(folder / HELDOUT, [source.heldout for source in prepared])
        return cls(folder, train, heldout, counts, manifest, sources=dict(sources))

    @property
    def tokenizer(self) -> Path:
        """The folder of the tokenizer that they were made with."""
        return next(
            (source.tokenizer for source in self.sources.values()), self.folder / "tokenizer"
        )

    @property
    def fingerprint(self) -> str:
        """Equal for shards made from equal texts, with equal settings, by equal tokenizers."""
        return str(self.manifest["fingerprint"])

    def bytes_per_token(self, split: str = HELDOUT, *, ends: bool = False) -> float:
        """Return the bytes of a split's text per token, to convert nats per token to bits per byte.

        Args:
            split: "heldout" or "train".
            ends: whether to count an end-of-document token each, which is predicted but no bytes.
        """
        counts = self.counts[split]
        return counts.bytes / max(1, counts.tokens + ends * counts.documents)


def require_free(folder: Path) -> None:
    """Check that a folder holds nothing but token shards or the remains of making some.

    Raises:
        UserError: it holds something else.
    """
    atomic.require_writable(folder, is_folder=True)
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


def find_or_make(
    folder: Path, fingerprint: str, make: Callable[[Path], dict[str, Any]]
) -> PreparedText:
    """Return the shards of a folder if they have this fingerprint, or make and publish them whole.

    Args:
        folder: the folder, free or with other shards, which are replaced.
        fingerprint: see `PreparedText.fingerprint`.
        make: writes shards and tokenizer into an empty folder, and returns their manifest.

    Raises:
        UserError: the folder holds something else or cannot be written, or of `make`.
    """
    require_free(folder)
    with atomic.locked(folder, wait=True):
        part = folder / PART
        shutil.rmtree(part, ignore_errors=True)  # left by a process that was killed
        try:
            prepared = PreparedText.load(folder, reused=True)
        except UserError:
            prepared = None
        if prepared is not None and prepared.fingerprint == fingerprint:
            return prepared
        with atomic.user_errors(folder):
            part.mkdir()
        try:
            _publish(part, folder, make(part))
        finally:
            shutil.rmtree(part, ignore_errors=True)
    return PreparedText.load(folder, verify=False)


def _publish(part: Path, folder: Path, manifest: dict[str, Any]) -> None:
    """Move finished shards into the folder; the manifest is removed first and written last."""
    with atomic.user_errors(folder):
        (folder / MANIFEST).unlink(missing_ok=True)
        for name in manifest["files"]:
            (part / name).replace(folder / name)
        shutil.rmtree(folder / "tokenizer", ignore_errors=True)
        (part / "tokenizer").replace(folder / "tokenizer")
        shutil.rmtree(part)
    stored.write(folder / MANIFEST, manifest)


def _size(path: Path) -> int | None:
    """Return the bytes of a file, or None if there is none."""
    return path.stat().st_size if path.is_file() else None


def data_warnings(counts: Mapping[str, Any], unknown: int = 0) -> dict[str, int]:
    """Return the irregularities of a text and their counts, without those of count 0.

    Args:
        counts: counts of reading, as in `prepared.json`.
        unknown: the number of unknown tokens.
    """
    kinds, reasons = (
        ", ".join(f"{count:,} {what}" for what, count in counts.get(name, {}).items())
        for name in ("skipped", "left")
    )
    warnings = {
        "unknown tokens": unknown,
        "empty documents": counts["empty_documents"],
        "pairs with an empty side": counts.get("empty_sides", 0),
        "empty files": counts["empty_files"],
        "bytes replaced": counts["replaced_bytes"],
        f"files not read ({kinds})": sum(counts["skipped"].values()),
        f"texts not read ({reasons})": sum(counts.get("left", {}).values()),
    }
    return {what: count for what, count in warnings.items() if count}
