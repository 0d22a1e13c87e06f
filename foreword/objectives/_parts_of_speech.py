"""The part of speech of each token of a vocabulary, from a treebank."""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import lru_cache
from pathlib import Path

import numpy as np

from foreword.errors import UserError
from foreword.tables.conllu import read_conllu
from foreword.types import Array, Vocab


def parts_of_speech(file: str, vocab: Vocab) -> Array:
    """Return the class of each token, -1 for special ones; (size,) int64.

    A token that begins a word has the most frequent tag (UPOS) of the word with its spelling, or
    of that in lower case. Tokens that the treebank lacks are two classes of their own: those that
    begin words and those within them.

    Raises:
        UserError: the file cannot be read, or has none of the tokens.
    """
    classes = _of_spellings(file, vocab.spellings, vocab.starts_word.tobytes())
    return np.where(vocab.is_special, -1, classes)


@lru_cache(maxsize=2)
def _of_spellings(file: str, spellings: tuple[bytes, ...], starts_word: bytes) -> Array:
    tags: dict[str, Counter[str]] = defaultdict(Counter)
    try:
        sentences = read_conllu(Path(file), "upos")
    except UserError as error:
        raise UserError(f"objective.tags: {error}") from error
    for sentence in sentences:
        for word, tag in zip(sentence.words, sentence.tags["upos"], strict=True):
            if tag is not None:
                for form in {word, word.lower()}:
                    tags[form][tag] += 1
    most = {form: counts.most_common(1)[0][0] for form, counts in tags.items()}
    number = {tag: n for n, tag in enumerate(sorted(set(most.values())), 2)}
    classes = np.frombuffer(starts_word, bool).astype(np.int64)
    known = 0
    for token, spelling in enumerate(spellings):
        word = spelling.decode(errors="replace").strip()
        tag = (most.get(word) or most.get(word.lower())) if classes[token] else None
        if tag is not None:
            classes[token] = number[tag]
            known += 1
    if spellings and not known:
        raise UserError(f"objective.tags: {file} has none of the words of the vocabulary")
    return classes
