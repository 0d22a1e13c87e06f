"""The word vectors that analogies and similarities are computed with."""

from __future__ import annotations

from foreword.errors import UserError
from foreword.interop.word_table import word_table
from foreword.probes._contract import ProbedModel
from foreword.vectors.table import WordTable


def table_of(probed: ProbedModel) -> WordTable:
    """Return the input word vectors of a model: those of word2vec, or its embeddings.

    Raises:
        UserError: the model has none.
    """
    prompted = probed.trained
    try:
        return word_table(prompted.model, prompted.tokenizer)
    except UserError as error:
        raise UserError(f"{prompted.name}: {error}") from error


def require_some(probed: ProbedModel, count: int, what: str) -> None:
    """Check that a list has an entry within the model's vocabulary.

    Args:
        probed: the model.
        count: number of entries without unknown words.
        what: the missing measurement, such as "question could be asked".

    Raises:
        UserError: `count` is 0.
    """
    if not count:
        raise UserError(
            f"{probed.trained.name}: no {what}: each has a word that is not in the vocabulary; "
            "name another list with --set file=FILE"
        )
