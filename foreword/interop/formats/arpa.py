"""ARPA files: n-gram models as KenLM, SRILM and speech recognisers read them."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from foreword.disk import atomic
from foreword.errors import UserError
from foreword.interop import importing
from foreword.interop.formats._contract import ExchangeResult
from foreword.models.ngram import NgramBackbone, table_of
from foreword.ngrams import arpa
from foreword.ngrams.counting import ABSENT
from foreword.ngrams.texts import predictable_words
from foreword.runs.recipe import Recipe
from foreword.runs.trained_model import TrainedModel
from foreword.settings import config
from foreword.text.special import ALL, BOS, EOS, UNK
from foreword.text.tokenizers.word import Word
from foreword.types import Array, Vocab

UNKNOWN = ("<unk>", "<UNK>")  # other programs' names of [UNK]; we write the first


@dataclass(frozen=True)
class ARPA:
    """A text file of n-grams with logarithms to base 10.

    The token before a text is written `<s>`, the one after it `</s>`, and [UNK] `<unk>`; if the
    text itself has a word `<unk>`, that keeps its name and [UNK] is written `[UNK]`.
    """

    def write(self, trained: TrainedModel, out: Path) -> ExchangeResult:
        if not trained.recipe.model.is_count_based:
            raise UserError(f"{trained.run}: not an n-gram model, and ARPA files hold n-grams only")
        atomic.require_writable(out, is_folder=False)
        if out.exists():
            raise UserError(f"{out}: already exists; choose another --out")
        table = table_of(trained.model)
        names = _written_names(trained)
        # Words and text boundaries only: other special tokens are not in the file.
        is_written = predictable_words(trained.vocab, trained.recipe.bos_and_eos[1])
        is_written[table.header.start] = True
        ids = np.where(is_written, np.cumsum(is_written) - 1, ABSENT)
        written = table.renumber(ids, int(is_written.sum()))
        arpa.write(written, [names[n] for n in np.flatnonzero(is_written)], out)
        sizes = {f"{n}-grams": size for n, size in enumerate(written.header.sizes, start=1)}
        return ExchangeResult({"file": str(out), **sizes, "bytes": out.stat().st_size})

    def read(self, source: str, run: Path) -> ExchangeResult:
        # Read the file and make a tokenizer of its words.
        file = Path(source)
        table, words = arpa.read(file)
        if table.header.order > 1 and EOS not in words:
            raise UserError(f"{file}: has no word {EOS}, which ends each text")
        ordinary = [word for word in words if word not in (*ALL, _unknown_word(words))]
        if not ordinary:
            raise UserError(f"{file}: has no words")
        tokenizer = Word("whitespace", vocab=len(ALL) + len(ordinary), min_count=1).of(ordinary)
        ids = _ids(words, tokenizer.vocab, ordinary)
        # Build an n-gram model around the table, and write its run.
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
        source_files = {"format": "arpa", "file": str(file.resolve()), "files": files}
        importing.write_run(run, recipe, tokenizer, model, {"imported": source_files})
        # Tell of words that get no probability, and words that no text can hold.
        notes = [] if _unknown_word(words) else ["no <unk>: words not in the file are impossible"]
        if never := sum(not _can_occur(word) for word in ordinary):
            notes.append(
                "words that never occur, since text is split at white space and normalised to "
                f"composed letters (NFC): {never:,}"
            )
        sizes = {f"{n}-grams": size for n, size in enumerate(table.header.sizes, start=1)}
        return ExchangeResult(
            {"run": str(run), **sizes, "vocabulary": tokenizer.vocab.size}, tuple(notes)
        )


def _written_names(trained: TrainedModel) -> list[str]:
    """Return the name of each id in the file."""
    names = trained.tokenizer.pieces
    bos, eos = trained.recipe.bos_and_eos
    vocab, written = trained.vocab, {bos: BOS, eos: EOS}
    written |= {} if UNKNOWN[0] in names else {UNK: UNKNOWN[0]}
    for special, name in written.items():
        if special in vocab.special:
            names[vocab.special[special]] = name
    return names


def _unknown_word(words: list[str]) -> str:
    """Return the word of a file that stands for [UNK], "" if there is none."""
    return next((word for word in (UNK, *UNKNOWN) if word in words), "")


def _can_occur(word: str) -> bool:
    """Return whether the tokenizer can produce the word from a text."""
    return word.split() == [word] and unicodedata.is_normalized("NFC", word)


def _ids(words: list[str], vocab: Vocab, ordinary: list[str]) -> Array:
    """Return the tokenizer's id of each word of a file."""
    numbers = {**vocab.special, **{word: len(ALL) + n for n, word in enumerate(ordinary)}}
    numbers[_unknown_word(words)] = vocab.id(UNK)
    return np.array([numbers.get(word, ABSENT) for word in words])
