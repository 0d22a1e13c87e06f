"""ARPA files: n-gram models that KenLM, SRILM and speech recognisers read."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from foreword import atomic, config
from foreword.errors import UserError
from foreword.interop import importing
from foreword.interop.formats._contract import ExchangeResult
from foreword.models.ngram import NgramBackbone, table_of
from foreword.ngrams import arpa
from foreword.ngrams.counting import ABSENT
from foreword.ngrams.texts import predictable_words
from foreword.runs.recipe import Recipe
from foreword.runs.trained_model import TrainedModel
from foreword.text.special import ALL, BOS, EOS, UNK
from foreword.text.tokenizers.word import Word
from foreword.types import Array, Vocab

UNKNOWN = ("<unk>", "<UNK>")  # as others write what we call [UNK]; we write the first


@dataclass(frozen=True)
class ARPA:
    """A text file of n-grams with logarithms to the base 10.

    The token that begins a text is written `<s>`, the one that ends it `</s>`, and [UNK] `<unk>`;
    where the text itself has a word `<unk>`, this keeps its name and [UNK] stays `[UNK]`.
    """

    def write(self, trained: TrainedModel, out: Path) -> ExchangeResult:
        """See `Format`."""
        if not trained.recipe.model.is_count_based:
            raise UserError(f"{trained.run}: ARPA files hold n-grams, and this is another model")
        atomic.require_writable(out, is_folder=False)
        if out.exists():
            raise UserError(f"{out}: is there already; choose another --out")
        table = table_of(trained.model)
        names = _names(trained)
        # Other special tokens are no words, and the file does not name them.
        is_there = predictable_words(trained.vocab, trained.recipe.wrapping[1])
        is_there[table.header.start] = True
        ids = np.where(is_there, np.cumsum(is_there) - 1, ABSENT)
        shown = table.renumber(ids, int(is_there.sum()))
        arpa.write(shown, [names[n] for n in np.flatnonzero(is_there)], out)
        sizes = {f"{n}-grams": size for n, size in enumerate(shown.header.sizes, start=1)}
        return ExchangeResult({"file": str(out), **sizes, "bytes": out.stat().st_size})

    def read(self, source: str, run: Path) -> ExchangeResult:
        """See `Format`."""
        file = Path(source)
        table, words = arpa.read(file)
        if table.header.order > 1 and EOS not in words:
            raise UserError(f"{file}: has no word {EOS}, which ends each text")
        own = [word for word in words if word not in (*ALL, _spelt(words))]
        if not own:
            raise UserError(f"{file}: has no words")
        tokenizer = Word("whitespace", vocab=len(ALL) + len(own), min_count=1).of(own)
        ids = _ids(words, tokenizer.vocab, own)
        recipe = config.build(
            Recipe,
            {
                "description": f"{table.header.order}-gram, imported",
                "family": "n-gram",
                "tokenizer": {"kind": "word", "split": "whitespace", "min_count": 1},
                "read": {"documents": "line"},
                "packing": {"kind": "documents", "bos": BOS, "eos": EOS},
                "model": {"kind": "ngram", "order": table.header.order},
                "objective": "causal",
                "layout": "decoder",
            },
        )
        model = recipe.build(tokenizer.vocab)
        assert isinstance(model.backbone, NgramBackbone)
        model.backbone.table = table.renumber(ids, tokenizer.vocab.size)
        files = {file.name: atomic.checksum(file)}
        came_from = {"format": "arpa", "file": str(file.resolve()), "files": files}
        importing.write_run(run, recipe, tokenizer, model, {"imported": came_from})
        notes = [] if _spelt(words) else ["no <unk>: words that it does not have are impossible"]
        if never := sum(not _is_met(word) for word in own):
            notes.append(
                "words never met, since text is split at white space and its letters are composed: "
                f"{never:,}"
            )
        sizes = {f"{n}-grams": size for n, size in enumerate(table.header.sizes, start=1)}
        return ExchangeResult(
            {"run": str(run), **sizes, "vocabulary": tokenizer.vocab.size}, tuple(notes)
        )


def _names(trained: TrainedModel) -> list[str]:
    """What each id is called in the file."""
    names = trained.tokenizer.pieces
    before, after = trained.recipe.wrapping
    vocab, called = trained.vocab, {before: BOS, after: EOS}
    called |= {} if UNKNOWN[0] in names else {UNK: UNKNOWN[0]}
    for special, name in called.items():
        if special in vocab.special:
            names[vocab.special[special]] = name
    return names


def _spelt(words: list[str]) -> str:
    """The word of a file that stands for [UNK], "" where there is none."""
    return next((word for word in (UNK, *UNKNOWN) if word in words), "")


def _is_met(word: str) -> bool:
    """Whether the tokenizer finds the word in text that has it."""
    return word.split() == [word] and unicodedata.is_normalized("NFC", word)


def _ids(words: list[str], vocab: Vocab, own: list[str]) -> Array:
    """The tokenizer's id of each word of a file."""
    numbers = {**vocab.special, **{word: len(ALL) + n for n, word in enumerate(own)}}
    numbers[_spelt(words)] = vocab.id(UNK)
    return np.array([numbers.get(word, ABSENT) for word in words])
