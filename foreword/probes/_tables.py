"""The vectors of words that lists of questions are put to."""

from __future__ import annotations

from foreword.errors import UserError
from foreword.interop.word_table import word_table
from foreword.probes._contract import ProbedModel
from foreword.vectors.table import WordTable


def table_of(probed: ProbedModel) -> WordTable:
    """The vectors that enter a model: of word2vec its own, of any other its embeddings.

    Raises:
        UserError: it has none.
    """
    prompted = probed.trained
    try:
        return word_table(prompted.model, prompted.tokenizer)
    except UserError as error:
        raise UserError(f"{prompted.name}: {error}") from error


def require_some(probed: ProbedModel, count: int, what: str) -> None:
    """Makes sure that a list has something for a model's vocabulary.

    Args:
        probed: the model.
        count: of what has no unknown word.
        what: could be done with that, as in "question could be asked".

    Raises:
        UserError: it has not.
    """
    if not count:
        raise UserError(
            f"{probed.trained.name}: no {what}: each has a word that is not in the vocabulary; "
            "name another list with --set file=FILE"
        )
