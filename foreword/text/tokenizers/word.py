"""Words: the most frequent ones; all others are unknown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from tokenizers import Tokenizer as Engine
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from foreword.settings.ranges import CountOrZero, Total
from foreword.text import special, training
from foreword.text.sample import draw_sample
from foreword.text.tokenizer import Tokenizer
from foreword.text.tokenizers._contract import TokenizerKind, unheard


@dataclass(frozen=True)
class Word(TokenizerKind):
    """Whole words, with punctuation marks as separate tokens or as parts of words.

        "the lowest!"  ->  the lowest !     split at punctuation
        "the lowest!"  ->  the lowest!      split at whitespace

    The tokens of n-gram, word2vec and early neural language models. Decoding puts single spaces
    between words. Tokenized corpora (Penn Treebank, WikiText) require `whitespace`: their `<unk>`
    is then an ordinary word.

    Attributes:
        split: where words end: at whitespace alone, or at each mark of punctuation too.
        vocab: the most words to keep, special tokens included; fewer if the text has fewer.
        lowercase: whether to lower-case.
        min_count: how often a word must occur to be kept; the rest are [UNK], which thus occurs in
            training.
        sample_bytes: the most text to learn from, in bytes.

    Also called: words, whitespace.
    """

    split: Literal["punctuation", "whitespace"] = "punctuation"
    vocab: training.Vocab = 30_000
    lowercase: bool = False
    min_count: CountOrZero = 2
    sample_bytes: Total = 100_000_000

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.split not in ("punctuation", "whitespace"):
            raise ValueError(f"split: punctuation or whitespace, got {self.split!r}")

    def train(self, texts: Iterable[str], note: Callable[[str], None] = unheard) -> Tokenizer:
        """Count the words of `texts`, read once, and keep the most frequent.

        Raises:
            UserError: there is no text.
        """
        sample = draw_sample(texts, self.sample_bytes)
        engine = self._engine(models.WordLevel(unk_token=special.UNK))
        trainer = trainers.WordLevelTrainer(
            vocab_size=self.vocab,
            min_frequency=self.min_count,
            special_tokens=training.special_tokens(),
            show_progress=False,
        )
        training.learn(engine, sample.texts(), trainer, sample.counts, note)
        return training.finish(engine, self, sample.counts)

    def of(self, words: Sequence[str]) -> Tokenizer:
        """Return the tokenizer of these words, in their order, after the special tokens."""
        ids = {word: n for n, word in enumerate((*special.ALL, *words))}
        engine = self._engine(models.WordLevel(ids, unk_token=special.UNK))
        engine.add_special_tokens(training.special_tokens())
        return training.finish(engine, self, None)

    def _engine(self, model: models.WordLevel) -> Engine:
        """Return the engine that splits and joins words."""
        cleaned = [normalizers.NFC()] + [normalizers.Lowercase()] * self.lowercase
        is_split = self.split == "punctuation"
        return training.assemble(
            model,
            normalizers.Sequence(cleaned),
            pre_tokenizers.BertPreTokenizer() if is_split else pre_tokenizers.WhitespaceSplit(),
            # Joins words with spaces but not punctuation; no word has the prefix. Without a
            # decoder all are joined with spaces.
            decoders.WordPiece(prefix="##") if is_split else None,
        )
