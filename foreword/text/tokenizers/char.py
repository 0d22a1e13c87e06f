"""Characters: each one of the text is a token."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from tokenizers import decoders, models

from foreword.settings.ranges import Total
from foreword.text import special, training
from foreword.text.sample import count_characters, draw_sample
from foreword.text.tokenizer import Tokenizer
from foreword.text.tokenizers._contract import TokenizerKind, unheard


@dataclass(frozen=True)
class Char(TokenizerKind):
    """Single characters (Unicode code points), the most frequent first.

        "low!"  ->  l o w !

    Text of known characters decodes exactly; other characters are [UNK].

    Attributes:
        vocab: the most characters to keep, special tokens included; fewer if the text has fewer.
        sample_bytes: the most text to learn from, in bytes.

    Also called: characters.
    """

    vocab: training.Vocab = 10_000
    sample_bytes: Total = 100_000_000

    def train(self, texts: Iterable[str], note: Callable[[str], None] = unheard) -> Tokenizer:
        """Count the characters of `texts`, read once, and keep the most frequent.

        Raises:
            UserError: there is no text.
        """
        sample = draw_sample(texts, self.sample_bytes, has_words=False)
        note("counting characters")
        counts = count_characters(sample.texts())
        order = np.argsort(-counts, kind="stable")[: self.vocab - len(special.ALL)]
        names = [*special.ALL, *(chr(c) for c in order if counts[c])]
        # BPE without merges splits a text into characters faster than a pattern does.
        model = models.BPE({name: i for i, name in enumerate(names)}, [], unk_token=special.UNK)
        engine = training.assemble(model, None, None, decoders.Fuse())
        engine.add_special_tokens(training.special_tokens(joins_left=False))
        return training.finish(engine, self, sample.counts)
