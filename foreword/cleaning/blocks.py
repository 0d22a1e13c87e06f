"""datatrove's blocks of Foreword: read sources, apply a step, remove duplicates, save.

Each block writes its account when its documents have ended. A task that is killed has no mark of
completion, so it runs again from its beginning and writes the same.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import Any

import multiprocess
import pyarrow as pa
from datatrove.data import Document
from datatrove.pipeline.base import PipelineStep
from datatrove.pipeline.dedup import exact_dedup, minhash
from loguru import logger

from foreword.cleaning.account import Account, excerpt, key_of
from foreword.cleaning.languages import LANGUAGE, PROBABILITY, UNKNOWN, identify
from foreword.cleaning.signs import signs_of
from foreword.cleaning.steps._contract import CorpusStep, DocumentFilter, DocumentStep
from foreword.data.read_documents import read_file
from foreword.data.text_files import ReadCounts, ReadSettings, sum_counts
from foreword.disk import atomic, stored
from foreword.errors import UserError

# datatrove is silent: errors are raised, counts are in the accounts.
logger.disable("datatrove")
for _module in (exact_dedup, minhash):
    _module.tqdm = partial(_module.tqdm, disable=True)

NEAR = 0.2  # a threshold is near if the verdict changes when it is moved by this share
LOOKED_AT, ONE_IN = 200, 32  # documents of a task whose nearness is looked at: the first, then some
BLOCK = 64  # consecutive documents of a file that one task takes
NUMBERED, ERROR = "{:05}.json", ".error"


@dataclass(frozen=True)
class FilePart:
    """A share of a file's documents.

    Attributes:
        file: the file.
        number: the number of the share, from 0.
        of: number of shares.
    """

    file: Path
    number: int = 0
    of: int = 1


class ReadSources(PipelineStep):  # type: ignore[misc]
    """Read the documents of some files.

    Args:
        tasks: the parts that each task reads.
        settings: how files become documents.
        accounts: folder for the counts of reading.
    """

    name, type = "Foreword: read", "reader"

    def __init__(self, tasks: list[list[FilePart]], settings: ReadSettings, accounts: Path) -> None:
        super().__init__()
        self.tasks, self.settings, self.accounts = tasks, settings, accounts

    def run(self, data: Any = None, rank: int = 0, world_size: int = 1) -> Iterator[Any]:
        """Yield the documents of a task; if that fails, note why for the process that waits."""
        try:
            yield from self._read(rank)
        except UserError as error:
            atomic.write_text(self.accounts / f"{rank:05}{ERROR}", str(error))
            raise

    def _read(self, rank: int) -> Iterator[Any]:
        counts = []
        for part in self.tasks[rank]:
            of_file, documents = ReadCounts(), 0
            for number, document in enumerate(read_file(part.file, self.settings, of_file)):
                if number // BLOCK % part.of == part.number:
                    read = Document(document.text, document.source)
                    identify(read)
                    yield read
                    documents += 1
            once = asdict(of_file) if part.number == 0 else {}  # of those who share it
            counts.append(once | {"documents": documents})
        stored.write(self.accounts / NUMBERED.format(rank), sum_counts(counts))


class ReadSaved(PipelineStep):  # type: ignore[misc]
    """Read what the task of the same number saved in the stage before.

    Args:
        folder: of the texts.
    """

    name, type = "Foreword: read", "reader"

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def run(self, data: Any = None, rank: int = 0, world_size: int = 1) -> Iterator[Any]:
        """Yield the documents of a task."""
        file = self.folder / f"part-{rank:05}.jsonl.zst"
        if not file.exists():  # nothing was left of this task's documents
            return
        with file.open("rb") as raw:
            for line in BufferedReader(pa.CompressedInputStream(raw, "zstd"), 1 << 20):
                record = json.loads(line)
                text, source = record.pop("text"), record.pop("source")
                yield Document(text, source, metadata=record)


class Apply(PipelineStep):  # type: ignore[misc]
    """Apply a step of documents.

    Args:
        step: the step.
        folder: that of the step's `prepare`.
        accounts: folder for the accounts.
        samples: number of samples of each side and reason.
    """

    name, type = "Foreword: apply", "filter"

    def __init__(self, step: DocumentStep, folder: Path, accounts: Path, samples: int) -> None:
        super().__init__()
        self.step, self.folder, self.accounts, self.samples = step, folder, accounts, samples

    def run(self, data: Any, rank: int = 0, world_size: int = 1) -> Iterator[Any]:
        """Yield the documents that the step keeps."""
        account = Account(self.samples)
        judge = self.step.opened(self.folder)
        near = _Near(self.step, self.folder)
        judged_languages = self.step.judged
        for document in data:
            before = document.text
            account.read.add(before)
            language = identify(document)
            if judged_languages and language not in (*judged_languages, UNKNOWN):
                account.not_judged[language] += 1
                account.kept.add(before)
                yield document
                continue
            is_kept, reason = _verdict(judge, document)
            if is_kept and not document.text:
                is_kept, reason = False, "nothing left"
            account.count_language(language, is_dropped=not is_kept)
            self._sample(account, near, document, before, reason if not is_kept else None)
            if not is_kept:
                account.dropped[reason].add(before)
                continue
            account.changed += document.text != before
            account.kept.add(document.text)
            yield document
        account.details.update(getattr(judge, "details", None) or _details(judge))
        stored.write(self.accounts / NUMBERED.format(rank), account.as_json())

    def _sample(
        self, account: Account, near: _Near, document: Any, before: str, dropped: str | None
    ) -> None:
        """Keep a document as a sample, if it is one."""
        key = key_of(document.id)
        sample = {"key": key, "source": document.id, "text": excerpt(before)}
        if dropped is not None:
            is_near = near.is_kept_by_laxer(document, before, key)
            side = "dropped, near" if is_near else "dropped"
            if account.samples.wants(side, dropped, key):
                if ngram := document.metadata.get("contaminated_ngram"):
                    sample["note"] = f"{ngram} ({document.metadata['contaminated_task']})"
                account.samples.add({**sample, "side": side, "reason": dropped})
            return
        if document.text != before and account.samples.wants("changed", "", key):
            # Steps that remove personal data do not show the text before.
            extra = {"before": excerpt(before, document.text)} if self.step.shows_before else {}
            after = excerpt(document.text, before)
            account.samples.add({**sample, **extra, "text": after, "side": "changed", "reason": ""})
        reason = near.reason_of_stricter(document, before, key)
        if reason and account.samples.wants("kept, near", reason, key):
            account.samples.add({**sample, "side": "kept, near", "reason": reason})


class _Near:
    """The verdicts on some documents if all thresholds are moved a little.

    Args:
        step: the step.
        folder: that of the step's `prepare`.
    """

    def __init__(self, step: DocumentStep, folder: Path) -> None:
        shifted = [step.shifted(share) for share in (NEAR, -NEAR)]
        self._stricter, self._laxer = [
            variant.opened(folder) if variant else None for variant in shifted
        ]
        self._looked_at = 0

    def reason_of_stricter(self, document: Any, text: str, key: str) -> str:
        """Return why a stricter step would drop a document, "" if it would not or is not asked."""
        if self._stricter is None or not self._is_looked_at(key):
            return ""
        return _verdict(self._stricter, replace(document, text=text))[1]

    def is_kept_by_laxer(self, document: Any, text: str, key: str) -> bool:
        """Return whether a laxer step would keep a document; False if it is not asked."""
        if self._laxer is None or not self._is_looked_at(key):
            return False
        return _verdict(self._laxer, replace(document, text=text))[0]

    def _is_looked_at(self, key: str) -> bool:
        self._looked_at += 1
        return self._looked_at <= LOOKED_AT or int(key, 16) % ONE_IN == 0


class Search(PipelineStep):  # type: ignore[misc]
    """Search signatures.

    Args:
        block: datatrove's.
    """

    name, type = "Foreword: search", "search"

    def __init__(self, block: Any) -> None:
        super().__init__()
        self.block = block

    def run(self, data: Any = None, rank: int = 0, world_size: int = 1) -> None:
        """Search the task's share of the signatures."""
        self.block.run(data, rank, world_size)


class Remove(PipelineStep):  # type: ignore[misc]
    """Remove what a step of the corpus found.

    Args:
        step: the step.
        folder: of its signatures and of what was found.
        accounts: folder for the accounts.
        samples: number of samples.
    """

    name, type = "Foreword: remove", "filter"

    def __init__(self, step: CorpusStep, folder: Path, accounts: Path, samples: int) -> None:
        super().__init__()
        self.step, self.folder, self.accounts, self.samples = step, folder, accounts, samples

    def run(self, data: Any, rank: int = 0, world_size: int = 1) -> Iterator[Any]:
        """Yield the documents that stay."""
        account = Account(self.samples)
        dropped = _Dropped(account)
        for document in self.step.remover(self.folder, dropped)(
            self._grouped(data, rank, account), rank, world_size
        ):
            account.kept.add(document.text)
            account.count_language(identify(document), is_dropped=False)
            if document.metadata.pop("duplicate_count", 1):  # 0 for one without exact duplicates
                dropped.sample(document, "kept of duplicates")
            yield document
        stored.write(self.accounts / NUMBERED.format(rank), account.as_json())

    def _grouped(self, data: Any, rank: int, account: Account) -> Iterator[Any]:
        """Yield the documents, each with the key of its group of duplicates."""
        for number, document in enumerate(data):
            account.read.add(document.text)
            document.metadata[GROUP] = self.step.group(self.folder, rank, number, document)
            yield document


GROUP = "group"  # of duplicates, a key of a document's metadata


@dataclass
class _Dropped:
    """The writer to which datatrove's filters hand what they drop."""

    account: Account

    def __enter__(self) -> _Dropped:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def write(self, document: Any, rank: int = 0) -> None:
        """Count a document that is dropped."""
        self.account.dropped["duplicate"].add(document.text)
        self.account.count_language(identify(document), is_dropped=True)
        self.sample(document, "dropped")

    def sample(self, document: Any, role: str) -> None:
        """Keep a document as a sample of its group, if it has one."""
        if not (key := document.metadata.pop(GROUP, "")):
            return
        if self.account.samples.wants("duplicates", "", key):
            text = excerpt(document.text)
            sample = {"key": key, "source": document.id, "text": text, "note": role}
            self.account.samples.add({**sample, "side": "duplicates", "reason": ""})


class CountSigns(PipelineStep):  # type: ignore[misc]
    """Count the documents that look as if they needed another step.

    Args:
        folder: for the counts.
    """

    name, type = "Foreword: count signs", "stats"

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def run(self, data: Any, rank: int = 0, world_size: int = 1) -> Iterator[Any]:
        """Yield the documents."""
        counts: Counter[str] = Counter()
        for document in data:
            counts.update(signs_of(document.text))
            yield document
        stored.write(self.folder / NUMBERED.format(rank), counts)


class Save(PipelineStep):  # type: ignore[misc]
    """Save the documents, and pass them on.

    Args:
        folder: for the texts, one file for each task; none for a task without documents.
    """

    name, type = "Foreword: save", "writer"

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def run(self, data: Any, rank: int = 0, world_size: int = 1) -> Iterator[Any]:
        """Yield the documents."""
        file = self.folder / f"part-{rank:05}.jsonl.zst"
        parent, are_none = multiprocess.parent_process(), True
        with suppress(_EmptyError), atomic.writing(file, "wb") as raw:
            copy = os.fdopen(os.dup(raw.fileno()), "wb")  # which the stream closes
            with pa.CompressedOutputStream(copy, "zstd") as stream:
                for number, document in enumerate(data):
                    if not number % BLOCK and parent is not None and not parent.is_alive():
                        os._exit(1)  # it was killed; another process may do this task now
                    are_none = False
                    metadata = {k: v for k, v in document.metadata.items() if k in SAVED}
                    record = {"text": document.text, "source": document.id, **metadata}
                    stream.write(stored.to_json(record).encode() + b"\n")
                    yield document
            if are_none:
                raise _EmptyError


SAVED = (LANGUAGE, PROBABILITY)


class _EmptyError(Exception):
    """A file that would be empty, and is not written."""


def _verdict(judge: DocumentFilter, document: Any) -> tuple[bool, str]:
    """Return whether a document is kept, and the reason if it is not."""
    try:
        verdict = judge.filter(document)
    except ZeroDivisionError:  # datatrove's, of a text without words
        return False, "no words"
    if isinstance(verdict, tuple):
        is_kept, reason = verdict
        return is_kept, "" if is_kept else reason.removeprefix("gopher_").replace("_", " ")
    return verdict, "" if verdict else "dropped"


def _details(judge: Any) -> dict[str, int]:
    """Return the counts of lines of datatrove's filters."""
    stats = getattr(getattr(judge, "stats", None), "stats", {})
    removed = {
        name.removeprefix("line-filter-").replace("_", " "): int(value.total)
        for name, value in stats.items()
        if name.startswith("line-filter-")
    }
    return {f"lines removed: {reason}": count for reason, count in removed.items()}
