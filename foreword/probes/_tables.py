"""The vectors of words that lists of questions are put to."""

from __future__ import annotations

from foreword.errors import UserError
from foreword.interop.word_table import word_table
from foreword.probes._contract import Specimen
from foreword.vectors.table import WordTable


def table_of(specimen: Specimen) -> WordTable:
    """The vectors that enter a model: of word2vec its own, of any other its embeddings.

    Raises:
        UserError: it has none.
    """
    subject = specimen.subject
    try:
        return word_table(subject.model, subject.tokenizer)
    except UserError as error:
        raise UserError(f"{subject.name}: {error}") from error


def require_some(specimen: Specimen, count: int, what: str) -> None:
    """Makes sure that a list has something for a model's vocabulary.

    Args:
        specimen: the model.
        count: of what has no unknown word.
        what: could be done with that, as in "question could be asked".

    Raises:
        UserError: it has not.
    """
    if not count:
        raise UserError(
            f"{specimen.subject.name}: no {what}: each has a word that is not in the vocabulary; "
            "name another list with --set file=FILE"
        )
