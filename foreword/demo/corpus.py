"""The demo's text on disk: documents to pretrain on, passages whose package is to be told.

text/  documents.jsonl   {"text", "package"}: one document a docstring
       train.jsonl       {"text", "label"}: passages, the names of packages taken out
       test.jsonl        the same, from other source files, which documents.jsonl lacks
       about.json        what was read, kept and left out
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from foreword import atomic, stored
from foreword.demo.installed import Package
from foreword.demo.passages import choose_passages, is_for_pretraining
from foreword.demo.reading import OnProgress, read


@dataclass(frozen=True)
class Limits:
    """How much is read and asked.

    Attributes:
        characters: of prose read of each package, about.
        packages: the most of them that are to be told apart.
        train: labelled passages of each to learn from.
        test: labelled passages of each to score.
    """

    characters: int = 600_000
    packages: int = 8
    train: int = 40
    test: int = 60


@dataclass(frozen=True)
class CorpusCounts:
    """What was read, kept and left out.

    Attributes:
        packages: that were read, Python's own library among them.
        files: source files with text in triple quotes.
        unread: source files that are no Python of this version, or cannot be opened.
        docstrings: in these files.
        repeated: paragraphs left out, since they stand elsewhere too.
        documents: to pretrain on.
        words: of these.
        test_documents: kept out of pretraining, with all others of their source files.
        shared: of these, left out of the test for eight words in a row that stand in `documents`.
        labels: the packages to be told apart.
        train: labelled passages to learn from.
        test: labelled passages to score.
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
    """Reads packages and writes the demo's text.

    Args:
        folder: to make.
        packages: to read.
        limits: how much.
        on_progress: told how far it is.

    Raises:
        UserError: too little is documented here, or the folder cannot be written.
    """
    found = read(packages, limits.characters, on_progress)
    passages = choose_passages(found.texts, limits.packages, limits.train, limits.test)
    documents = [text for text in found.texts if is_for_pretraining(text, passages.labels)]
    counts = CorpusCounts(
        packages=len({text.package for text in found.texts}),
        files=found.files,
        unread=found.unread,
        docstrings=found.docstrings,
        repeated=found.repeated,
        documents=len(documents),
        words=sum(len(text.whole.split()) for text in documents),
        test_documents=len(found.texts) - len(documents),
        shared=passages.shared,
        labels=passages.labels,
        train=len(passages.train),
        test=len(passages.test),
    )
    with atomic.folder(folder) as part:
        texts = ({"text": text.whole, "package": text.package} for text in documents)
        _write(part / "documents.jsonl", texts)
        for name, chosen in (("train", passages.train), ("test", passages.test)):
            _write(part / f"{name}.jsonl", ({"text": t, "label": label} for t, label in chosen))
        about = stored.to_json({"counts": asdict(counts), "limits": asdict(limits)}, indent=1)
        (part / "about.json").write_text(about + "\n", encoding="utf-8")
    return counts


def load(folder: Path) -> CorpusCounts | None:
    """The counts of what `build` wrote before, or None where it has not."""
    if not (folder / "about.json").is_file():
        return None
    about = json.loads((folder / "about.json").read_text(encoding="utf-8"))
    return CorpusCounts(**about["counts"])


def _write(path: Path, records: Iterable[dict[str, Any]]) -> None:
    with path.open("w", encoding="utf-8") as file:
        for record in records:
            file.write(stored.to_json(record) + "\n")
