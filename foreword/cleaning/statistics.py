"""The statistics of a step: what it read, dropped and changed, with samples.

Each task writes one; they add up to the same whatever the number of processes.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from foreword.cleaning.words import count_words
from foreword.text import utf8

EXCERPT = 700  # characters of a sample
OF_A_GROUP = 3  # samples of the same group of duplicates


@dataclass
class Amount:
    """An amount of text."""

    documents: int = 0
    bytes: int = 0
    words: int = 0

    def add(self, text: str, sign: int = 1) -> None:
        """Add a text, or subtract it."""
        self.documents += sign
        self.bytes += sign * utf8.size(text)
        self.words += sign * count_words(text)

    def include(self, other: Mapping[str, int]) -> None:
        """Add another amount, as JSON has it."""
        for name, value in other.items():
            setattr(self, name, getattr(self, name) + value)


class Samples:
    """The samples of each side and reason: those whose keys are smallest, a random choice.

    Args:
        most: samples of each side and reason.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._samples: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)

    def add(self, sample: Mapping[str, Any]) -> None:
        """Add a sample with `key`, `side`, `reason`, `source` and `text`."""
        samples = self._samples[sample["side"], sample["reason"]]
        samples.append(dict(sample))
        samples.sort(key=lambda s: (s["key"], s["source"]))
        keys = list(dict.fromkeys(s["key"] for s in samples))[: self._most]
        seen: Counter[str] = Counter()
        self._samples[sample["side"], sample["reason"]] = [
            s
            for s in samples
            if s["key"] in keys and (seen.update([s["key"]]) or seen[s["key"]] <= OF_A_GROUP)
        ]

    def would_keep(self, side: str, reason: str, key: str) -> bool:
        """Return whether a sample with this key would be kept."""
        samples = self._samples[side, reason]
        return len(samples) < self._most or (bool(samples) and key <= samples[-1]["key"])

    def as_json(self) -> list[dict[str, Any]]:
        """Return all samples."""
        return [sample for _, samples in sorted(self._samples.items()) for sample in samples]


@dataclass
class StepStatistics:
    """The statistics of a step.

    Attributes:
        most: samples of each side and reason.
        read: what came in.
        kept: what went on, as it went on.
        dropped: what was dropped, by reason.
        changed: documents whose text was changed.
        not_judged: documents that passed because of their language, by language.
        languages: documents judged and dropped, by language.
        details: counts of the step's own.
        samples: texts of both sides.
    """

    most: int
    read: Amount = field(default_factory=Amount)
    kept: Amount = field(default_factory=Amount)
    dropped: defaultdict[str, Amount] = field(default_factory=lambda: defaultdict(Amount))
    changed: int = 0
    not_judged: Counter[str] = field(default_factory=Counter)
    languages: dict[str, list[int]] = field(default_factory=dict)
    details: Counter[str] = field(default_factory=Counter)
    samples: Samples = field(init=False)

    def __post_init__(self) -> None:
        self.samples = Samples(self.most)

    def count_language(self, language: str, *, is_dropped: bool) -> None:
        """Count a document by language."""
        counts = self.languages.setdefault(language, [0, 0])
        counts[0] += 1
        counts[1] += is_dropped

    def include(self, other: Mapping[str, Any]) -> None:
        """Add the statistics of another task, as JSON has it."""
        self.read.include(other["read"])
        self.kept.include(other["kept"])
        for reason, size in other["dropped"].items():
            self.dropped[reason].include(size)
        self.changed += other["changed"]
        self.not_judged.update(other["not_judged"])
        for language, (judged, dropped) in other["languages"].items():
            counts = self.languages.setdefault(language, [0, 0])
            counts[0] += judged
            counts[1] += dropped
        self.details.update(other["details"])
        for sample in other["samples"]:
            self.samples.add(sample)

    def as_json(self) -> dict[str, Any]:
        """Return the statistics as JSON has it."""

        def by_size(counts: Mapping[str, Any], of: Any) -> dict[str, Any]:
            return dict(sorted(counts.items(), key=lambda item: (-of(item[1]), item[0])))

        return {
            "read": asdict(self.read),
            "kept": asdict(self.kept),
            "dropped": {
                reason: asdict(size)
                for reason, size in by_size(self.dropped, lambda size: size.documents).items()
            },
            "changed": self.changed,
            "not_judged": by_size(self.not_judged, int),
            "languages": by_size(self.languages, lambda counts: counts[0]),
            "details": by_size(self.details, int),
            "samples": self.samples.as_json(),
        }


def total(parts: Iterable[Mapping[str, Any]], most: int) -> dict[str, Any]:
    """Return the sum of the statistics of all tasks, as JSON has it."""
    statistics = StepStatistics(most)
    for part in parts:
        statistics.include(part)
    return statistics.as_json()


def key_of(name: str) -> str:
    """Return a key for a document or a group that is random but always the same."""
    return hashlib.blake2b(name.encode("utf-8", "replace"), digest_size=8).hexdigest()


def excerpt(text: str, other: str | None = None) -> str:
    """Return the beginning of a text; with `other`, from shortly before the first difference."""
    start = 0
    if other is not None:
        same = next((n for n, (a, b) in enumerate(zip(text, other, strict=False)) if a != b), 0)
        start = max(0, same - 80)
    cut = text[start : start + EXCERPT]
    return ("…" if start else "") + cut + ("…" if start + EXCERPT < len(text) else "")
