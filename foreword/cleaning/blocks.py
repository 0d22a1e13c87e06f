"""datatrove's blocks of Foreword: read sources, apply a step, remove duplicates, save.

Each block writes its statistics when its documents have ended. A task that is killed has no mark of
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

from foreword.cleaning.languages import LANGUAGE, PROBABILITY, UNKNOWN, identify
from foreword.cleaning.signs import signs_of
from foreword.cleaning.statistics import Samples, StepStatistics, excerpt, key_of
from foreword.cleaning.steps._contract import CorpusStep, DocumentFilter, DocumentStep
from foreword.data.read_documents import read_file
from foreword.data.text_files import ReadCounts, ReadSettings, sum_counts
from foreword.disk import atomic, stored
from foreword.errors import UserError

# datatrove is silent: errors are raised, counts are in the statistics.
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
        out: folder for the counts of reading.
    """

    name, type = "Foreword: read", "reader"

    def __init__(self, tasks: list[list[FilePart]], settings: ReadSettings, out: Path) -> None:
        super().__init__()
        self.tasks, self.settings, self.out = tasks, settings, out

    def run(self, data: Any = None, rank: int = 0, world_size: int = 1) -> Iterator[Any]:
        """Yield the documents of a task; if that fails, note why for the process that waits."""
        try:
            yield from self._read(rank)
        except UserError as error:
            atomic.write_text(self.out / f"{rank:05}{ERROR}", str(error))
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
        stored.write(self.out / NUMBERED.format(rank), sum_counts(counts))


class ReadSaved(PipelineStep):  # type: ignore[misc]
    """Read what the task of the same number saved in the stage before.

    Args:
        folder: the folder of the texts.
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
        folder: the folder of the step's `prepare`.
        out: folder for the statistics.
        samples: number of samples of each side and reason.
    """

    name, type = "Foreword: apply", "filter"

    def __init__(self, step: DocumentStep, folder: Path, out: Path, samples: int) -> None:
        super().__init__()
        self.step, self.folder, self.out, self.samples = step, folder, out, samples

    def run(self, data: Any, rank: int = 0, world_size: int = 1) -> Iterator[Any]:
        """Yield the documents that the step keeps."""
        statistics = StepStatistics(self.samples)
        document_filter = self.step.opened(self.folder)
        near = _Near(self.step, self.folder)
        languages = self.step.judged
        for document in data:
            before = document.text
            statistics.read.add(before)
            language = identify(document)
            if languages and language not in (*languages, UNKNOWN):
                statistics.not_judged[language] += 1
                statistics.kept.add(before)
                yield document
                continue
            is_kept, reason = _verdict(document_filter, document)
            if is_kept and not document.text:
                is_kept, reason = False, "nothing left"
            statistics.count_language(language, is_dropped=not is_kept)
            self._sample(
                statistics.samples, near, document, before, reason if not is_kept else None
            )
            if not is_kept:
                statistics.dropped[reason].add(before)
                continue
            statistics.changed += document.text != before
            statistics.kept.add(document.text)
            yield document
        details = getattr(document_filter, "details", None) or _details(document_filter)
        statistics.details.update(details)
        stored.write(self.out / NUMBERED.format(rank), statistics.as_json())

    def _sample(
        self, samples: Samples, near: _Near, document: Any, before: str, dropped: str | None
    ) -> None:
        """Keep a document as a sample, if it is one."""
        key = key_of(document.id)
        sample = {"key": key, "source": document.id, "text": excerpt(before)}
        if dropped is not None:
            is_near = near.is_kept_by_laxer(document, before, key)
            side = "dropped, near" if is_near else "dropped"
            if samples.would_keep(side, dropped, key):
                if ngram := document.metadata.get("contaminated_ngram"):
                    sample["note"] = f"{ngram} ({document.metadata['contaminated_task']})"
                samples.add({**sample, "side": side, "reason": dropped})
            return
        if document.text != before and samples.would_keep("changed", "", key):
            # Steps that remove personal data do not show the text before.
            extra = {"before": excerpt(before, document.text)} if self.step.shows_before else {}
            after = excerpt(document.text, before)
            samples.add({**sample, **extra, "text": after, "side": "changed", "reason": ""})
        reason = near.reason_of_stricter(document, before, key)
        if reason and samples.would_keep("kept, near", reason, key):
            samples.add({**sample, "side": "kept, near", "reason": reason})


class _Near:
    """The verdicts on some documents if all thresholds are moved a little.

    Args:
        step: the step.
        folder: the folder of the step's `prepare`.
    """

    def __init__(self, step: DocumentStep, folder: Path) -> None:
        shifted = [step.shifted(share) for share in (NEAR, -NEAR)]
        self._stricter, self._laxer = [
            variant.opened(folder) if variant else None for variant in shifted
        ]
        self._looked_at = 0

    def reason_of_stricter(self, document: Any, text: str, key: str) -> str:
        """Return why a stricter step would drop a document, "" if it would not or is not asked."""
        if self._stricter is None or not self._is_sampled(key):
            return ""
        return _verdict(self._stricter, replace(document, text=text))[1]

    def is_kept_by_laxer(self, document: Any, text: str, key: str) -> bool:
        """Return whether a laxer step would keep a document; False if it is not asked."""
        if self._laxer is None or not self._is_sampled(key):
            return False
        return _verdict(self._laxer, replace(document, text=text))[0]

    def _is_sampled(self, key: str) -> bool:
        self._looked_at += 1
        return self._looked_at <= LOOKED_AT or int(key, 16) % ONE_IN == 0


class Remove(PipelineStep):  # type: ignore[misc]
    """Remove what a step of the corpus found.

    Args:
        step: the step.
        folder: the folder of its signatures and of the duplicates found.
        out: folder for the statistics.
        samples: number of samples.
    """

    name, type = "Foreword: remove", "filter"

    def __init__(self, step: CorpusStep, folder: Path, out: Path, samples: int) -> None:
        super().__init__()
        self.step, self.folder, self.out, self.samples = step, folder, out, samples

    def run(self, data: Any, rank: int = 0, world_size: int = 1) -> Iterator[Any]:
        """Yield the documents that stay."""
        statistics = StepStatistics(self.samples)
        dropped = _Dropped(statistics)
        for document in self.step.remover(self.folder, dropped)(
            self._grouped(data, rank, statistics), rank, world_size
        ):
            statistics.kept.add(document.text)
            statistics.count_language(identify(document), is_dropped=False)
            if document.metadata.pop("duplicate_count", 1):  # 0 for one without exact duplicates
                dropped.sample(document, "kept of duplicates")
            yield document
        stored.write(self.out / NUMBERED.format(rank), statistics.as_json())

    def _grouped(self, data: Any, rank: int, statistics: StepStatistics) -> Iterator[Any]:
        """Yield the documents, each with the key of its group of duplicates."""
        for number, document in enumerate(data):
            statistics.read.add(document.text)
            document.metadata[GROUP] = self.step.group(self.folder, rank, number, document)
            yield document


GROUP = "group"  # of duplicates, a key of a document's metadata


@dataclass
class _Dropped:
    """The writer to which datatrove's filters hand what they drop."""

    statistics: StepStatistics

    def __enter__(self) -> _Dropped:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def write(self, document: Any, rank: int = 0) -> None:
        """Count a document that is dropped."""
        self.statistics.dropped["duplicate"].add(document.text)
        self.statistics.count_language(identify(document), is_dropped=True)
        self.sample(document, "dropped")

    def sample(self, document: Any, role: str) -> None:
        """Keep a document as a sample of its group, if it has one."""
        if not (key := document.metadata.pop(GROUP, "")):
            return
        if self.statistics.samples.would_keep("duplicates", "", key):
            text = excerpt(document.text)
            sample = {"key": key, "source": document.id, "text": text, "note": role}
            self.statistics.samples.add({**sample, "side": "duplicates", "reason": ""})


class CountSigns(PipelineStep):  # type: ignore[misc]
    """Count the documents that look as if they needed another step.

    Args:
        folder: the folder for the counts.
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
        folder: the folder for the texts, with a file for each task that has documents.
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


def _verdict(document_filter: DocumentFilter, document: Any) -> tuple[bool, str]:
    """Return whether a document is kept, and the reason if it is not."""
    try:
        verdict = document_filter.filter(document)
    except ZeroDivisionError:  # datatrove's, of a text without words
        return False, "no words"
    if isinstance(verdict, tuple):
        is_kept, reason = verdict
        return is_kept, "" if is_kept else reason.removeprefix("gopher_").replace("_", " ")
    return verdict, "" if verdict else "dropped"


def _details(document_filter: Any) -> dict[str, int]:
    """Return the counts of lines of datatrove's filters."""
    stats = getattr(getattr(document_filter, "stats", None), "stats", {})
    removed = {
        name.removeprefix("line-filter-").replace("_", " "): int(value.total)
        for name, value in stats.items()
        if name.startswith("line-filter-")
    }
    return {f"lines removed: {reason}": count for reason, count in removed.items()}
