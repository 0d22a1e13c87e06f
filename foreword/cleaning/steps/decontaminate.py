"""Overlap with evaluation sets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foreword.cleaning.steps._contract import DocumentFilter, DocumentStep
from foreword.data.text_files import ReadCounts, ReadSettings, TextFile
from foreword.errors import UserError
from foreword.settings.ranges import Count

JSON_LINES, JSON = (".jsonl", ".ndjson"), ".json"


@dataclass(frozen=True)
class Decontaminate(DocumentStep):
    """Drop documents that share a sequence of words with an evaluation set.

    Words are compared without case, punctuation, digits and accents. All texts of a `.json` or
    `.jsonl` file count, wherever they stand in it, and each line of any other file. Texts shorter
    than the sequence cannot be found.

    Reference: Brown et al. 2020, Language Models are Few-Shot Learners,
    https://arxiv.org/abs/2005.14165, appendix C; as datatrove has it.

    Attributes:
        files: files of the evaluation sets.
        ngram: words of a sequence.
        languages: languages of the documents that it judges; none for all.
    """

    files: tuple[str, ...] = ()
    ngram: Count = 12
    languages: tuple[str, ...] = ()

    def prepare(self, folder: Path) -> None:
        import numpy as np

        if not self.files:
            raise UserError("files: required; name the files of the evaluation sets")
        block: Any = self.opened(folder)
        folder.mkdir(parents=True, exist_ok=True)
        for number, file in enumerate(map(Path, self.files)):
            hashes = {
                ngram_hash
                for text in _texts(file)
                for ngram_hash in _hashes(block, text, self.ngram)
            }
            if not hashes:
                raise UserError(
                    f"{file}: no text of {self.ngram} words or more, so nothing to find"
                )
            name = f"{number:03}-{file.name.replace(' ', '_')}.index.hashes"
            (folder / name).write_bytes(np.array(sorted(hashes), np.uint64).tobytes())

    def opened(self, folder: Path) -> DocumentFilter:
        from datatrove.pipeline.decont import NGramsDecontFilter
        from datatrove.pipeline.decont.n_grams import NGramsDecontConfig
        from datatrove.utils.hashing import HashConfig

        from foreword.cleaning.words import WORDS

        config = NGramsDecontConfig(n_grams=self.ngram, hash_config=HashConfig(hash_fc="sha1"))
        document_filter: DocumentFilter = NGramsDecontFilter(str(folder), config, language=WORDS)
        return document_filter


def _hashes(block: Any, text: str, length: int) -> Iterator[int]:
    """Yield the hashes of a text's sequences of words, as datatrove's filter computes them."""
    from datatrove.utils.text import ngrams, simplify_text

    words = block.tokenizer.word_tokenize(simplify_text(text, block.config.norm_config))
    return map(block.hash_func, map(" ".join, ngrams(words, length)))


def _texts(file: Path) -> Iterator[str]:
    """Yield the texts of an evaluation set."""
    source = TextFile(file, ReadSettings(errors="replace"), ReadCounts())
    suffixes = [suffix.lower() for suffix in file.suffixes]
    try:
        if JSON in suffixes:
            with source.open() as stream:
                yield from _strings(json.loads(stream.read()))
            return
        for number, start, line in source.lines():
            text = source.decode(line, f"{file}:{number}", start)
            if set(JSON_LINES) & set(suffixes):
                yield from _strings(json.loads(text)) if text.strip() else ()
            else:
                yield text
    except OSError as error:
        raise UserError(f"{file}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{file}: not JSON ({error})") from None


def _strings(value: Any) -> Iterator[str]:
    """Yield every text in a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _strings(item)
