"""WordPiece: words in pieces, all but the first marked `##`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tokenizers import Tokenizer as Engine
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from foreword.settings.ranges import CountOrZero, Total
from foreword.text import special, training
from foreword.text.alphabet import Alphabet
from foreword.text.sample import Sample, draw_sample
from foreword.text.tokenizer import Tokenizer
from foreword.text.tokenizers._contract import TokenizerKind, unheard

PREFIX = "##"


@dataclass(frozen=True)
class WordPiece(TokenizerKind):
    """WordPiece as in BERT (Devlin et al. 2019, section 3; Wu et al. 2016).

        "unaffordable!"  ->  un ##afford ##able !

    Control characters are dropped, all whitespace is a space, and punctuation stands alone; so
    decoding is readable, not exact. A word with a character outside the vocabulary, or of more
    than 100 characters, is [UNK].

    *Differs from the paper:* pieces are found by merging the most frequent pair, as BPE does and as
    the `tokenizers` library does for BERT; Google's trainer was never published. Hangul and other
    composed letters stay whole where BERT's lower-casing takes them apart.

    Attributes:
        vocab: size of the vocabulary, special tokens included; less if the text has fewer pieces.
        lowercase: whether to lower-case, and drop accents with it.
        min_count: how often a pair must occur to become a piece.
        coverage: share of the text that the characters of the vocabulary make up, the most frequent
            first; the rest are [UNK]. A lower one saves room where there are many characters.
        sample_bytes: the most text to learn from, in bytes.
    """

    vocab: training.Vocab = 30_522
    lowercase: bool = True
    min_count: CountOrZero = 2
    coverage: training.Coverage = training.COVERAGE
    sample_bytes: Total = 100_000_000

    def train(self, texts: Iterable[str], note: Callable[[str], None] = unheard) -> Tokenizer:
        """Learn the vocabulary from `texts`, read once.

        Raises:
            UserError: there is no text, or `vocab` has no room for its characters.
        """
        sample = draw_sample(texts, self.sample_bytes, merges=True)
        alphabet = Alphabet(sample, self.coverage, self._engine({}), marks_inner=True)
        alphabet.require_room(self.vocab)
        # The trainer numbers the `##` letters in no fixed order, and the numbers decide between
        # equally frequent pairs. Found first and given in order, they make training repeat.
        letters = self._learn(sample, [], 0, lambda text: note("looking for letters"))
        alphabet.require_room(self.vocab, len(letters) - len(special.ALL))
        inner = sorted(piece for piece in letters if piece.startswith(PREFIX))
        engine = self._engine(self._learn(sample, inner, self.vocab, note))
        tokenizer = training.finish(engine, self, sample.covering(self.coverage))
        return training.require_vocab(tokenizer, self.vocab)

    def _engine(self, vocab: dict[str, int]) -> Engine:
        engine = training.assemble(
            models.WordPiece(vocab, unk_token=special.UNK, max_input_chars_per_word=100),
            # Lower-casing drops accents from decomposed text; NFC puts the rest together again.
            normalizers.Sequence(
                [normalizers.BertNormalizer(lowercase=self.lowercase), normalizers.NFC()]
            ),
            pre_tokenizers.BertPreTokenizer(),
            decoders.WordPiece(prefix=PREFIX),
        )
        engine.add_special_tokens(training.special_tokens())
        return engine

    def _learn(
        self, sample: Sample, first: list[str], vocab: int, note: Callable[[str], None]
    ) -> dict[str, int]:
        """Return ids by piece: special tokens, the pieces `first`, the alphabet, then merges."""
        trainer = trainers.WordPieceTrainer(
            vocab_size=vocab,
            min_frequency=self.min_count,
            special_tokens=[*special.ALL, *first],
            continuing_subword_prefix=PREFIX,
            show_progress=False,
        )
        engine = self._engine({})
        texts = sample.texts_within(self.coverage)
        training.learn(engine, texts, trainer, sample.counts, note)
        return engine.get_vocab(with_added_tokens=False)
