"""The contract of tokenizers, the kinds in `text/tokenizers/`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable

from foreword.settings.ranges import Ranged
from foreword.text.tokenizer import Tokenizer


def unheard(text: str) -> None:
    """Ignore a note."""


class TokenizerKind(Ranged, ABC):
    """The settings of a tokenizer and how it is trained; the trained one is a `Tokenizer`."""

    @property
    @abstractmethod
    def vocab(self) -> int:
        """The most tokens of its vocabulary, special ones included."""

    @abstractmethod
    def train(self, texts: Iterable[str], note: Callable[[str], None] = unheard) -> Tokenizer:
        """Learn the vocabulary from `texts`, which are read once.

        The same texts give the same tokenizer. The special tokens are its first ids, and plain
        text never becomes one; `foreword.text.training` assembles such an engine.

        Args:
            texts: the documents; may be many gigabytes (`foreword.text.sample` draws a part).
            note: receives progress messages.

        Raises:
            UserError: there is no text, or `vocab` has no room for its characters.
        """
