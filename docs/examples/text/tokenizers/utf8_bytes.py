"""Bytes as tokens, as an example of a tokenizer in a plug-in."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tokenizers import decoders, models, pre_tokenizers

from foreword.settings.ranges import Total
from foreword.text import special, training
from foreword.text.sample import draw_sample
from foreword.text.tokenizer import Tokenizer
from foreword.text.tokenizers._contract import TokenizerKind, unheard


@dataclass(frozen=True)
class Utf8Bytes(TokenizerKind):
    """Each byte of the text as UTF-8 is a token; nothing is learned, and nothing is unknown.

        "é!"  ->  \\xc3 \\xa9 !

    Attributes:
        sample_bytes: the most text to count for the record, in bytes.

    Reference: Xue et al. 2022, "ByT5", section 3.
    """

    sample_bytes: Total = 100_000_000

    @property
    def vocab(self) -> int:
        """The special tokens and 256 bytes."""
        return len(special.ALL) + 256

    def train(self, texts: Iterable[str], note: Callable[[str], None] = unheard) -> Tokenizer:
        """Return the tokenizer, which does not depend on `texts`.

        Raises:
            UserError: there is no text.
        """
        sample = draw_sample(texts, self.sample_bytes, has_words=False)
        names = [*special.ALL, *sorted(pre_tokenizers.ByteLevel.alphabet())]
        engine = training.assemble(
            models.BPE({name: i for i, name in enumerate(names)}, []),  # without merges
            None,
            pre_tokenizers.ByteLevel(add_prefix_space=False),
            decoders.ByteLevel(),
        )
        engine.add_special_tokens(training.special_tokens(joins_left=False))
        return training.finish(engine, self, sample.counts)
