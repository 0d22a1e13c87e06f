"""Text files to token shards, once: read, cut into training and held-out, encode, write.

    folder/  train.bin train.idx  heldout.bin heldout.idx  tokenizer/  prepared.json

`prepared.json` is written last and removed first: a folder without it is not finished. It says
what the shards were made from, so that they are made again whenever that changes, and never else.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from foreword import atomic
from foreword.data import holdout
from foreword.data.encoding import Cut, Encoded, Encoder, encoding
from foreword.data.reading import find_files, read_documents
from foreword.data.shards import Shards, ShardWriter
from foreword.data.sources import ReadCounts, ReadSettings
from foreword.errors import UserError
from foreword.text.special import UNK
from foreword.text.tokenizer import Tokenizer
from foreword.types import Array

MANIFEST = "prepared.json"
FORMAT = 1
TRAIN, HELDOUT = "train", "heldout"

_BATCH = 1 << 18  # bytes of text that a worker encodes at once
_SMALL = 4 << 20  # bytes of files below which starting workers takes longer than the work

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class PrepareSettings:
    """How documents become token shards.

    Attributes:
        heldout: share of the documents that is held out and never trained on; 0 for none.
        sentences: whether a sequence is a sentence; else it is a whole document. Of parallel text
            it is a side of a pair.
        workers: processes that encode; 0 for one per core. The shards do not depend on it.
    """

    heldout: float = 0.005
    sentences: bool = True
    workers: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.heldout < 1:
            raise ValueError(f"heldout: a share from 0 to below 1, got {self.heldout}")
        if self.workers < 0:
            raise ValueError(f"workers: must not be negative, got {self.workers}")


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
class Prepared:
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
    def load(cls, folder: str | Path, *, verify: bool = True, reused: bool = False) -> Prepared:
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
            manifest = json.loads(path.read_text(encoding="utf-8"))
            written = manifest["format"]
            counts = {name: Split(**split) for name, split in manifest["counts"].items()}
            files = dict(manifest["files"])
        except (ValueError, KeyError, TypeError, AttributeError):
            raise UserError(f"{path}: damaged; prepare the text again") from None
        if written != FORMAT:
            raise UserError(f"{path}: of format {written}, not {FORMAT}; prepare the text again")
        train, heldout = (Shards.open(folder / name) for name in (TRAIN, HELDOUT))
        for name, file in files.items():
            is_same = (folder / name).stat().st_size == file["bytes"]
            if not is_same or (verify and atomic.checksum(folder / name) != file["blake2b"]):
                raise UserError(
                    f"{folder / name}: changed since it was written; prepare the text again"
                )
        return cls(folder, train, heldout, counts, manifest, reused)

    @property
    def tokenizer(self) -> Path:
        """The folder of the tokenizer that they were made with."""
        return self.folder / "tokenizer"

    @property
    def fingerprint(self) -> str:
        """Equal for shards made from equal texts, with equal settings, by equal tokenizers."""
        return str(self.manifest["fingerprint"])

    @property
    def heldout_bytes_per_token(self) -> float:
        """Bytes of held-out text per token, to turn nats per token into bits per byte."""
        return self.counts[HELDOUT].bytes / max(1, self.counts[HELDOUT].tokens)


def prepare(
    inputs: Sequence[str | Path],
    tokenizer: Tokenizer,
    folder: str | Path,
    settings: PrepareSettings | None = None,
    read: ReadSettings | None = None,
    progress: Progress | None = None,
    heldout: Sequence[str | Path] = (),
) -> Prepared:
    """Makes token shards of text files, or finds them made.

    Without text given as `heldout`, the documents are held out whose text has a low hash, about
    `settings.heldout` of them; equal texts land on the same side. Where that holds out none, or
    all, the document with the lowest hash is held out, if it is at most a tenth of the text; a
    longer one, such as the only one, gives its last sentences, about that share of the text. The
    shards depend on the files' bytes, the settings and the tokenizer alone, not on the number of
    workers.

    Args:
        inputs: files, folders and patterns.
        tokenizer: text to ids; it is saved beside the shards.
        folder: where to write.
        settings: how documents become shards.
        read: how files become documents.
        progress: called with the bytes of the files done and their total, now and then.
        heldout: files, folders and patterns to hold out; then all of `inputs` is trained on.

    Raises:
        UserError: a file cannot be read, the folder cannot be written, or there is too little text.
    """
    settings, read, folder = settings or PrepareSettings(), read or ReadSettings(), Path(folder)
    counts = ReadCounts()
    files = find_files(inputs, counts, read)
    held = holdout.find_apart(heldout, files, counts, read)
    if held:
        settings = replace(settings, heldout=0.0)
    state = [_state(file) for file in [*files, *held]]
    with _alone(folder):
        text = fingerprint_text(files, read)
        made_from = [FORMAT, text, tokenizer.fingerprint, settings.heldout, settings.sentences]
        made_from += [fingerprint_text(held, read)] if held else []
        fingerprint = _hash(made_from)
        part = folder / ".part"
        shutil.rmtree(part, ignore_errors=True)  # of one that was killed
        if found := _find(folder, fingerprint):
            return found
        with atomic.explained(folder):
            part.mkdir()
        try:
            tokenizer.save(part / "tokenizer")
            cut: Cut = "sentences" if settings.sentences else "documents"
            cut = "lines" if read.target else cut
            making = _Making(part, tokenizer, settings, cut, progress, sum(s[0] for s in state))
            making.encode({TRAIN: files, HELDOUT: held}, read, counts)
            making.mend()
            for file, before in zip([*files, *held], state, strict=True):
                if _state(file) != before:
                    raise UserError(f"{file}: changed while it was read; prepare it again")
            manifest = {
                "format": FORMAT,
                "fingerprint": fingerprint,
                "text": text,
                "tokenizer": {"fingerprint": tokenizer.fingerprint, "vocab": tokenizer.vocab.size},
                "settings": {"heldout": settings.heldout, "sentences": settings.sentences},
                "read": {**asdict(read), "counts": asdict(counts)},
                "counts": {name: asdict(split) for name, split in making.counts.items()},
                "files": making.files,
            }
            _publish(part, folder, manifest)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    return Prepared.load(folder, verify=False)


@dataclass
class _Making:
    """The shards while they are made."""

    part: Path
    tokenizer: Tokenizer
    settings: PrepareSettings
    cut: Cut
    progress: Progress | None
    total: int
    counts: dict[str, Split] = field(default_factory=lambda: {TRAIN: Split(), HELDOUT: Split()})
    files: dict[str, dict[str, int | str]] = field(default_factory=dict)
    lowest: holdout.Lowest = field(default_factory=holdout.Lowest)

    def encode(
        self, files: Mapping[str, Sequence[Path]], read: ReadSettings, counts: ReadCounts
    ) -> None:
        """Reads, encodes and writes all documents, in their order.

        Args:
            files: to train on, by chance in part, and those that are to be held out.
            read: how files become documents.
            counts: what to count in.

        Raises:
            UserError: a file cannot be read, or there is no text in those to be held out.
        """
        settings = self.settings
        workers = settings.workers or _cores()
        under_way: deque[tuple[str, int, Future[Encoded]]] = deque()
        with ExitStack() as stack:
            writers = {name: stack.enter_context(self._writer(name)) for name in self.counts}
            submit = stack.enter_context(
                encoding(
                    Encoder(self.tokenizer, self.cut),
                    self.part / "tokenizer",
                    workers if self.total > _SMALL else 0,
                    self.cut,
                )
            )

            def write(at_most: int) -> None:
                """Writes what was submitted first, until so many batches are under way."""
                while len(under_way) > at_most:
                    name, size, future = under_way.popleft()
                    found = future.result()
                    writers[name].add(found.tokens, found.sequence_lengths, found.document_lengths)
                    self.counts[name].add(found, size)
                    if self.progress:
                        self.progress(counts.bytes_read, self.total)

            for name, batch in self._batches(files, read, counts):
                under_way.append((name, sum(map(len, batch)), submit(batch)))
                write(2 * workers)
            write(0)
        if files[HELDOUT] and not self.counts[HELDOUT].documents:
            raise UserError(f"{files[HELDOUT][0]}: there is no text in it to hold out")
        for writer in writers.values():
            self.files |= writer.files

    def mend(self) -> None:
        """Holds one document out, where none was or all were."""
        train, heldout = (self.counts[name] for name in (TRAIN, HELDOUT))
        if not self.settings.heldout or (train.documents and heldout.documents):
            return
        shards = Shards.open(self.part / (TRAIN if train.documents else HELDOUT))
        total = train.bytes + heldout.bytes
        pieces = self.lowest.cut(self.settings.heldout, total, is_whole=self.cut == "lines")
        places = self.lowest.places
        if self.cut == "lines":
            parts = holdout.cut_sequences(shards, places[0], 0)
        elif self.cut == "sentences":
            parts = holdout.cut_sequences(shards, places[0], len(pieces[0]))
        else:
            encoder = Encoder(self.tokenizer, self.cut)
            kept, held = ([b"".join(side)] if side else [] for side in pieces)
            parts = encoder.encode(kept), encoder.encode(held)
        mended = self.part / "mended"
        mended.mkdir()
        with self._writer(f"mended/{TRAIN}") as one, self._writer(f"mended/{HELDOUT}") as other:
            holdout.hold_out(shards, places, parts, one, other)
        self.files = one.files | other.files
        for name in self.files:
            (mended / name).replace(self.part / name)
        size = len(places) * sum(map(len, pieces[1]))
        unknown = self.tokenizer.vocab.special.get(UNK, -1)
        for name, size_bytes in ((TRAIN, total - size), (HELDOUT, size)):
            self.counts[name] = _count(Shards.open(self.part / name), size_bytes, unknown)

    def _batches(
        self, files: Mapping[str, Sequence[Path]], read: ReadSettings, counts: ReadCounts
    ) -> Iterator[tuple[str, list[bytes]]]:
        """Documents as UTF-8, a few at a time, with the side that they belong to."""
        pending: dict[str, list[bytes]] = {name: [] for name in self.counts}
        sizes = dict.fromkeys(self.counts, 0)
        documents = (
            (side, document)
            for side, those in files.items()
            for document in (read_documents(those, read, counts) if those else ())
        )
        for place, (side, document) in enumerate(documents):
            text = document.text.encode()
            number = holdout.draw(text) if text else 2.0  # a blank line is never held out alone
            self.lowest.see(number, text, place)
            name = HELDOUT if number < self.settings.heldout else side
            pending[name].append(text)
            sizes[name] += len(text)
            if sizes[name] >= _BATCH:
                yield name, pending[name]
                pending[name], sizes[name] = [], 0
        yield from ((name, batch) for name, batch in pending.items() if batch)

    def _writer(self, name: str) -> ShardWriter:
        return ShardWriter(self.part / name, self.tokenizer.vocab.size)


def _cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _count(shards: Shards, size: int, unknown: int) -> Split:
    block = 1 << 24
    tokens: Array = shards.tokens
    found = sum(
        int(np.count_nonzero(tokens[at : at + block] == unknown))
        for at in range(0, len(tokens), block)
    )
    return Split(len(shards), len(shards.sequence_lengths), len(tokens), size, found)


def _find(folder: Path, fingerprint: str) -> Prepared | None:
    """What is there already, if it was made from the same and is whole."""
    try:
        found = Prepared.load(folder, reused=True)
    except UserError:
        return None
    return found if found.fingerprint == fingerprint else None


def _publish(part: Path, folder: Path, manifest: dict[str, Any]) -> None:
    """Moves what was made to its place; the manifest goes first and comes last."""
    with atomic.explained(folder):
        (folder / MANIFEST).unlink(missing_ok=True)
        for name in manifest["files"]:
            (part / name).replace(folder / name)
        shutil.rmtree(folder / "tokenizer", ignore_errors=True)
        (part / "tokenizer").replace(folder / "tokenizer")
        shutil.rmtree(part)
    atomic.write_text(folder / MANIFEST, json.dumps(manifest, indent=2, ensure_ascii=False) + "\n")


def fingerprint_text(files: Sequence[Path], read: ReadSettings) -> str:
    """Equal for equal documents: a hash of the files' bytes and of how they are read.

    Raises:
        UserError: a file cannot be read.
    """
    try:
        with ThreadPoolExecutor() as threads:
            checksums = list(threads.map(atomic.checksum, files))
    except OSError as error:
        raise UserError(f"{error.filename}: {error.strerror}") from None
    kinds = ["".join(file.suffixes[-2:]).lower() for file in files]
    return _hash([kinds, checksums, asdict(read)])


def _hash(value: Any) -> str:
    return hashlib.blake2b(json.dumps(value).encode(), digest_size=16).hexdigest()


def _state(file: Path) -> tuple[int, int]:
    """What changes when a file does: its size and the time of its last change."""
    try:
        found = file.stat()
    except OSError as error:
        raise UserError(f"{file}: {error.strerror}") from None
    return found.st_size, found.st_mtime_ns


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Makes the folder and waits until no other process prepares text in it."""
    with atomic.explained(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / ".lock").open("w")
    with lock:
        try:
            import fcntl

            fcntl.flock(lock, fcntl.LOCK_EX)
        except (ImportError, OSError):  # a system, or a file system, without locks
            pass
        yield
