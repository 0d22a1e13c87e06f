"""Duplicates, character by character."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foreword.cleaning.steps._contract import CorpusStep


@dataclass(frozen=True)
class ExactDuplicates(CorpusStep):
    """Keep one of several documents with the same text.

    Texts are compared by a hash of 64 bits. Sources overlap: the same page is crawled twice, the
    same file lies in two folders.
    """

    def signer(self, folder: Path) -> Any:
        from datatrove.pipeline.dedup.exact_dedup import ExactDedupSignature

        return ExactDedupSignature(str(folder / "signatures"), _config())

    def searches(self, folder: Path, read: Any, tasks: int) -> list[tuple[Any, int]]:
        from datatrove.pipeline.dedup.exact_dedup import ExactFindDedups

        search = ExactFindDedups(
            str(folder / "signatures"),
            str(folder / "found"),
            config=_config(),
            lines_to_buffer=1000,
        )
        return [(search, 1)]

    def remover(self, folder: Path, dropped: Any) -> Any:
        from datatrove.pipeline.dedup.exact_dedup import ExactDedupFilter

        return ExactDedupFilter(str(folder / "found"), _config(), exclusion_writer=dropped)

    def group(self, folder: Path, rank: int, number: int, document: Any) -> str:
        return hashlib.blake2b(document.text.encode(), digest_size=8).hexdigest()


def _text(document: Any) -> str:
    text: str = document.text
    return text


def _config() -> Any:
    from datatrove.pipeline.dedup.exact_dedup import ExactDedupConfig
    from datatrove.utils.hashing import HashConfig

    return ExactDedupConfig(content_getter=_text, hash_config=HashConfig(hash_fc="sha1"))
