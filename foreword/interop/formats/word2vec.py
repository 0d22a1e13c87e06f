"""Files of word vectors as word2vec writes them and gensim and others read them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from foreword.disk import atomic
from foreword.errors import UserError
from foreword.interop import importing
from foreword.interop.formats._contract import ExchangeResult
from foreword.interop.word_table import word_table
from foreword.models.word_vectors import WordVectorsBackbone
from foreword.runs.recipe import Recipe
from foreword.runs.trained_model import TrainedModel
from foreword.settings import config
from foreword.text.special import ALL, BOS, EOS
from foreword.text.tokenizers.word import Word
from foreword.vectors import file


@dataclass(frozen=True)
class Word2Vec:
    """A file with a vector for each word, the most frequent first.

    A model other than word2vec is exported as the embeddings of pieces that begin a word. An
    imported one has vectors but no output layer: neighbours and analogies, but no predictions.

    Attributes:
        binary: export float32 instead of text; an import tells the form by the file.
    """

    binary: bool = False

    def write(self, trained: TrainedModel, out: Path) -> ExchangeResult:
        atomic.require_writable(out, is_folder=False)
        if out.exists():
            raise UserError(f"{out}: already exists; choose another --out")
        table = word_table(trained.model, trained.tokenizer)
        file.write(out, table.words, table.vectors, binary=self.binary)
        width = table.vectors.shape[1]
        size = out.stat().st_size
        return ExchangeResult(
            {"file": str(out), "words": len(table), "width": width, "bytes": size}
        )

    def read(self, source: str, run: Path) -> ExchangeResult:
        # Read the file and make a tokenizer of its words; of a word named twice the first counts.
        path = Path(source)
        words, vectors = file.read(path)
        first = {word: n for n, word in reversed(list(enumerate(words))) if word not in ALL}
        rows = np.sort(np.fromiter(first.values(), dtype=np.int64))
        imported = [words[n] for n in rows]
        if len(imported) < 2:
            raise UserError(f"{path}: has fewer than two words")
        tokenizer = Word("whitespace", vocab=len(ALL) + len(imported), min_count=1).of(imported)
        # Build a model with these vectors, and write its run.
        recipe = config.build(
            Recipe,
            {
                "description": f"word vectors of {path.name}, imported",
                "family": "word2vec",
                "tokenizer": {"kind": "word", "split": "whitespace", "min_count": 1},
                "packing": {"kind": "documents", "bos": BOS, "eos": EOS},
                "model": {"kind": "word_vectors", "d_model": vectors.shape[1]},
                "objective": "causal",
                "layout": "decoder",
            },
        )
        model = recipe.build(tokenizer.vocab)
        backbone = model.backbone
        assert isinstance(backbone, WordVectorsBackbone)
        with torch.no_grad():
            backbone.outputs.weight.zero_()
            backbone.embedding.token.weight.zero_()
            backbone.embedding.token.weight[len(ALL) :] = torch.from_numpy(vectors[rows])
        # The file does not hold the words' frequencies, only their order.
        backbone.counts = (~tokenizer.vocab.is_special).astype(np.int64)
        source_files = {
            "format": "word2vec",
            "file": str(path.resolve()),
            "files": {path.name: atomic.checksum(path)},
        }
        importing.write_run(run, recipe, tokenizer, model, {"imported": source_files})
        left = len(words) - len(imported)
        notes = ["the file holds no output layer: the run predicts nothing"]
        notes += [f"{left:,} words left out, named twice or like a special token"] * bool(left)
        facts = {"run": str(run), "words": len(imported), "width": vectors.shape[1]}
        return ExchangeResult(facts, tuple(notes))
