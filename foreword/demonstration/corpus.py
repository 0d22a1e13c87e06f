"""The demo's text on disk: documents for pretraining, passages labelled by their package.

text/  documents.jsonl   {"text", "package"}: one document a docstring
       train.jsonl       {"text", "label"}: passages without the names of packages
       test.jsonl        passages from other source files, which documents.jsonl leaves out
       about.json        counts of what was read, kept and left out
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from foreword.demonstration.installed import Package
from foreword.demonstration.passages import choose_passages, is_for_pretraining
from foreword.demonstration.reading import OnProgress, read
from foreword.disk import atomic, stored


@dataclass(frozen=True)
class Limits:
    """Limits of the text's size.

    Attributes:
        characters: characters of prose per package, approximately.
        packages: maximum number of packages to classify.
        train: labelled training passages per package.
        test: maximum number of labelled test passages per package.
    """

    characters: int = 600_000
    packages: int = 8
    train: int = 40
    test: int = 200


@dataclass(frozen=True)
class CorpusCounts:
    """Counts of what was read, kept and left out.

    Attributes:
        packages: packages read, including Python's own library.
        files: source files with text in triple quotes.
        unread: source files that cannot be opened or parsed by this version of Python.
        docstrings: docstrings in the files.
        repeated: paragraphs left out as duplicates.
        documents: documents for pretraining.
        words: words of these documents.
        test_documents: documents of the test's source files, which pretraining leaves out.
        shared: test documents left out because they share eight words in a row with `documents`.
        labels: packages to classify.
        train: labelled training passages.
        test: labelled test passages.
    """

    packages: int
    files: int
    unread: int
    docstrings: int
    repeated: int
    documents: int
    words: int
    test_documents: int
    shared: int
    labels: list[str]
    train: int
    test: int


def build(
    folder: Path, packages: Sequence[Package], limits: Limits, on_progress: OnProgress | None = None
) -> CorpusCounts:
    """Read packages and write the demo's text.

    Args:
        folder: folder to create.
        packages: packages to read.
        limits: size of the text.
        on_progress: called with the packages read and their total.

    Raises:
        UserError: the packages have too little documentation, or the folder cannot be written.
    """
    # Read the packages and split their prose between pretraining and test.
    prose = read(packages, limits.characters, on_progress)
    passages = choose_passages(prose.texts, limits.packages, limits.train, limits.test)
    documents = [text for text in prose.texts if is_for_pretraining(text, passages.labels)]
    counts = CorpusCounts(
        packages=len({text.package for text in prose.texts}),
        files=prose.files,
        unread=prose.unread,
        docstrings=prose.docstrings,
        repeated=prose.repeated,
        documents=len(documents),
        words=sum(len(text.whole.split()) for text in documents),
        test_documents=len(prose.texts) - len(documents),
        shared=passages.shared,
        labels=passages.labels,
        train=len(passages.train),
        test=len(passages.test),
    )
    # Write the files.
    with atomic.folder(folder) as part:
        texts = ({"text": text.whole, "package": text.package} for text in documents)
        _write(part / "documents.jsonl", texts)
        for name, chosen in (("train", passages.train), ("test", passages.test)):
            _write(part / f"{name}.jsonl", ({"text": t, "label": label} for t, label in chosen))
        about = stored.to_json({"counts": asdict(counts), "limits": asdict(limits)}, indent=1)
        (part / "about.json").write_text(about + "\n", encoding="utf-8")
    return counts


def load(folder: Path) -> CorpusCounts | None:
    """Return the counts of an earlier `build`, or None if there was none."""
    if not (folder / "about.json").is_file():
        return None
    about = json.loads((folder / "about.json").read_text(encoding="utf-8"))
    return CorpusCounts(**about["counts"])


def _write(path: Path, records: Iterable[dict[str, Any]]) -> None:
    with path.open("w", encoding="utf-8") as file:
        for record in records:
            file.write(stored.to_json(record) + "\n")
