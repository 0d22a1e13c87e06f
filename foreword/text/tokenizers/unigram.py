"""Unigram: the pieces under which the text is most probable, as in SentencePiece and T5."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers import Tokenizer as Engine

from foreword.settings.ranges import Total
from foreword.text import special, training
from foreword.text.alphabet import Alphabet
from foreword.text.sample import draw_sample
from foreword.text.tokenizer import Tokenizer
from foreword.text.tokenizers._contract import TokenizerKind, unheard

UNSPACED = 200_000  # bytes to learn from where words have no end


@dataclass(frozen=True)
class Unigram(TokenizerKind):
    """Unigram language model (Kudo 2018), as SentencePiece gives it to T5 and XLNet.

        "the lowest"  ->  ▁the ▁low est

    A space is written `▁` and belongs to the word after it. The text is normalised (NFKC, control
    characters dropped, whitespace of any length one space), so decoding is readable, not exact. A
    character outside the vocabulary is [UNK].

    *Differs from SentencePiece:* `[` and `<` end a piece, so no text can become a special token.

    Attributes:
        vocab: size of the vocabulary, special tokens included; less if the text has fewer pieces.
        coverage: share of the text that the characters of the vocabulary make up, the most frequent
            first; the rest are [UNK]. A lower one saves room where there are many characters.
        sample_bytes: the most text to learn from, in bytes. The trainer's memory grows with
            the number of different words: 0.8 GB for 50 MB of English.

    Also called: SentencePiece.
    """

    vocab: training.Vocab = 32_000
    coverage: training.Coverage = training.COVERAGE
    sample_bytes: Total = 50_000_000

    def train(self, texts: Iterable[str], note: Callable[[str], None] = unheard) -> Tokenizer:
        """Learn the pieces and their probabilities from `texts`, read once.

        Raises:
            UserError: there is no text, or `vocab` has no room for its characters.
        """
        sample = draw_sample(texts, self.sample_bytes, merges=True)
        if sample.is_mostly_unspaced:  # for which the trainer's passes take minutes
            sample = sample.within(UNSPACED)
        engine = training.assemble(
            models.Unigram(),
            normalizers.Sequence(
                [
                    normalizers.Nmt(),
                    normalizers.NFKC(),
                    normalizers.Replace(Regex(r"\s+"), " "),
                    normalizers.Strip(),
                ]
            ),
            pre_tokenizers.Sequence(
                [
                    pre_tokenizers.Metaspace(),
                    pre_tokenizers.Split(Regex(r"[\[<]"), "merged_with_previous"),
                ]
            ),
            decoders.Metaspace(),
        )
        Alphabet(sample, self.coverage, engine).require_room(self.vocab)
        trainer = trainers.UnigramTrainer(
            vocab_size=self.vocab,
            special_tokens=training.special_tokens(),
            unk_token=special.UNK,
            show_progress=False,
        )
        texts = sample.texts_within(self.coverage)
        training.learn(engine, texts, trainer, sample.counts, note)
        tokenizer = training.finish(_in_order(engine), self, sample.covering(self.coverage))
        return training.require_vocab(tokenizer, self.vocab)


def _in_order(engine: Engine) -> Engine:
    """Return `engine` with sorted pieces and rounded scores, so that training is reproducible.

    The trainer sums in no fixed order, which affects scores from the tenth digit on and the order
    of equal pieces. To the characters that no longer piece needs it gives, in no order, scores
    that rise from the lowest by 0.0001; here they all have the lowest.
    """
    state = json.loads(engine.to_str())
    pieces: list[list[Any]] = state["model"]["vocab"]
    special_pieces, learned = pieces[: len(special.ALL)], pieces[len(special.ALL) :]
    lowest = min((score for _, score in learned), default=0.0)
    characters = sum(len(piece) == 1 for piece, _ in learned)
    for entry in learned:
        steps = (entry[1] - lowest) / 1e-4
        is_unused = len(entry[0]) == 1 and steps < characters and abs(steps - round(steps)) < 1e-6
        entry[1] = round(lowest if is_unused else entry[1], 4)
    state["model"]["vocab"] = special_pieces + sorted(
        learned, key=lambda entry: (-entry[1], entry[0])
    )
    return Engine.from_str(json.dumps(state))
