"""Byte-level BPE: any text, byte for byte, and back."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tokenizers import decoders, models, pre_tokenizers, trainers

from foreword.settings.ranges import CountOrZero, Total
from foreword.text import training
from foreword.text.sample import draw_sample
from foreword.text.tokenizer import Tokenizer
from foreword.text.tokenizers._contract import TokenizerKind, unheard


@dataclass(frozen=True)
class BPE(TokenizerKind):
    """Byte-level BPE as in GPT-2 (Radford et al. 2019, section 2.2; Sennrich et al. 2016).

        "the lowest"  ->  the ·low est

    The 256 bytes are in the vocabulary, so nothing is unknown and decoding is exact.

    Attributes:
        vocab: size of the vocabulary, special tokens included; less if the text has fewer pieces.
        min_count: how often a pair must occur to be merged.
        sample_bytes: the most text to learn from, in bytes.

    Also called: byte-pair, byte pair encoding.
    """

    vocab: training.ByteVocab = 50_257
    min_count: CountOrZero = 2
    sample_bytes: Total = 100_000_000

    def train(self, texts: Iterable[str], note: Callable[[str], None] = unheard) -> Tokenizer:
        """Learn the merges from `texts`, read once.

        Raises:
            UserError: there is no text.
        """
        sample = draw_sample(texts, self.sample_bytes, merges=True)
        engine = training.assemble(
            models.BPE(),
            None,
            pre_tokenizers.ByteLevel(add_prefix_space=False),
            decoders.ByteLevel(),
        )
        trainer = trainers.BpeTrainer(
            vocab_size=self.vocab,
            min_frequency=self.min_count,
            special_tokens=training.special_tokens(),
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
            show_progress=False,
        )
        training.learn(engine, sample.texts(), trainer, sample.counts, note)
        tokenizer = training.finish(engine, self, sample.counts)
        return training.require_vocab(tokenizer, self.vocab)
