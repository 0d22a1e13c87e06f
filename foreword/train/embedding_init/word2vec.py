"""Embeddings that begin as the vectors of a file of words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from foreword.disk import atomic
from foreword.errors import UserError
from foreword.text.pieces import SPACE
from foreword.text.tokenizer import Tokenizer
from foreword.train.embedding_init._contract import EmbeddingInit, FirstVectors, Text
from foreword.vectors import file


@dataclass(frozen=True)
class Word2Vec(EmbeddingInit):
    """Vectors of a file as word2vec, GloVe and gensim write them, matched by the words' spelling.

    A token that begins a word has the vector of the file's word of this spelling. All others, which
    the file lacks or which stand within words, keep random embeddings.

    Also called: GloVe, fastText, pretrained word vectors.
    Reference: Mikolov et al. 2013; Pennington et al. 2014.

    Attributes:
        file: the file, as text or binary; its vectors are as wide as the model's embeddings.
    """

    stage: ClassVar[str] = "reading word vectors, for the first embeddings"

    file: str

    def source(self, text: Text) -> dict[str, Any]:
        """Return the file and its checksum."""
        path = Path(self.file)
        try:
            return {"file": self.file, "file_blake2b": atomic.checksum(path)}
        except OSError as error:
            raise UserError(f"{path}: cannot be read: {error.strerror}") from error

    def vectors(
        self, text: Text, tokenizer: Tokenizer, width: int, seed: int
    ) -> FirstVectors | None:
        """Return the vectors of the tokens that the file has; None if it has none of them."""
        words, rows = file.read(Path(self.file))
        row_of = {word: n for n, word in reversed(list(enumerate(words)))}
        vocab = tokenizer.vocab
        vectors = np.zeros((vocab.size, width), np.float32)
        for token in np.flatnonzero(vocab.starts_word & ~vocab.is_special).tolist():
            row = row_of.get(tokenizer.token(token).strip(SPACE))
            if row is not None:
                vectors[token] = rows[row]
        return FirstVectors(vectors) if vectors.any() else None

    def require_fit(self, widths: Sequence[int]) -> None:
        """Check that the file is there and its vectors are as wide as the widest table."""
        super().require_fit(widths)
        width = file.width_of(Path(self.file))
        if width != max(widths):
            raise UserError(
                f"train.embedding_init.file: {self.file} has vectors of {width} numbers, and the "
                f"model's embeddings have {max(widths)}"
            )
