"""Lists of words with several senses, with sentences for each sense."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foreword.errors import UserError, nearest
from foreword.evaluation.states import WordInText
from foreword.settings import config

DATA = Path(__file__).parent / "data"
MARKED = re.compile(r"\[([^\[\]]+)\]")


@dataclass(frozen=True)
class AmbiguousWord:
    """A word with several senses, and sentences for each.

    Attributes:
        word: the word as written in the sentences.
        senses: at least two sentences for each of at least two senses.
    """

    word: str
    senses: tuple[tuple[WordInText, ...], ...]

    @property
    def sentences(self) -> list[WordInText]:
        """All sentences, sense by sense."""
        return [sentence for sense in self.senses for sentence in sense]


def shipped_lists() -> list[str]:
    """Return the names of the shipped lists."""
    return sorted(path.stem for path in DATA.glob("*.toml"))


def read_words(name: str) -> list[AmbiguousWord]:
    """Read a list, a shipped one by its name or a TOML file of the same form.

    Raises:
        UserError: there is no such list, or something is missing in it.
    """
    path = DATA / f"{name}.toml"
    if name not in shipped_lists():
        path = Path(name)
        if path.suffix != ".toml" or not path.is_file():
            raise UserError(
                f"probe.words: no list '{name}', neither a .toml file nor shipped"
                f"{nearest(name, shipped_lists())}"
            )
    entries = config.read_toml(path).get("words")
    if not isinstance(entries, list) or not entries:
        raise UserError(f"{path}: no [[words]] in it")
    return [_word(entry, f"{path}: word {n}") for n, entry in enumerate(entries, 1)]


def _word(entry: Any, where: str) -> AmbiguousWord:
    """Return an entry of a list as a word; `where` begins the messages of errors."""
    word = entry.get("word") if isinstance(entry, Mapping) else None
    senses = entry.get("senses") if isinstance(entry, Mapping) else None
    if not isinstance(word, str) or not isinstance(senses, Mapping):
        raise UserError(f"{where}: expected a word, and its senses with sentences for each")
    # At least two senses, at least two sentences for each.
    where = f"{where} ({word})"
    if len(senses) < 2:
        raise UserError(f"{where}: needs at least two senses, has {len(senses)}")
    checked = []
    for sense, sentences in senses.items():
        if not isinstance(sentences, list) or len(sentences) < 2:
            raise UserError(f"{where}: sense '{sense}' needs at least two sentences")
        checked.append(tuple(_marked_sentence(sentence, word, where) for sentence in sentences))
    return AmbiguousWord(word, tuple(checked))


def _marked_sentence(sentence: Any, word: str, where: str) -> WordInText:
    """Return `The [bank] was steep.` as text and the span of its word."""
    marked = MARKED.findall(sentence) if isinstance(sentence, str) else []
    if marked != [word]:
        raise UserError(f"{where}: expected a sentence with one [{word}] in it, got {sentence!r}")
    start = sentence.index("[")
    text = sentence.replace(f"[{word}]", word)
    return WordInText(text, start, start + len(word))
