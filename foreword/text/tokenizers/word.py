"""Words: the most frequent ones; every other is unknown."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from foreword.text import special, training
from foreword.text.sample import draw
from foreword.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Word:
    """Whole words, and punctuation marks one by one.

        "the lowest!"  ->  the lowest !

    What n-gram, word2vec and early neural language models read. The text comes back with single
    spaces between words.

    Attributes:
        vocab: the most words to keep, special tokens included; fewer where the text has fewer.
        lowercase: whether to lower-case.
        min_count: how often a word must occur to be kept; the rest are [UNK], which so is met in
            training.
        sample_bytes: the most text to learn from, in bytes.
    """

    vocab: int = 30_000
    lowercase: bool = False
    min_count: int = 2
    sample_bytes: int = 100_000_000

    def __post_init__(self) -> None:
        training.check(self.vocab, self.sample_bytes)

    def train(self, texts: Iterable[str]) -> Tokenizer:
        """Counts the words of `texts`, read once, and keeps the most frequent.

        Raises:
            UserError: there is no text.
        """
        sample = draw(texts, self.sample_bytes)
        cleaned = [normalizers.NFC()] + [normalizers.Lowercase()] * self.lowercase
        engine = training.assemble(
            models.WordLevel(unk_token=special.UNK),
            normalizers.Sequence(cleaned),
            pre_tokenizers.BertPreTokenizer(),
            # Joins words with spaces but not punctuation; no word has the prefix.
            decoders.WordPiece(prefix="##"),
        )
        trainer = trainers.WordLevelTrainer(
            vocab_size=self.vocab,
            min_frequency=self.min_count,
            special_tokens=training.special_tokens(),
            show_progress=False,
        )
        engine.train_from_iterator(sample.texts(), trainer)
        return training.finish(engine, self, sample.counts)
