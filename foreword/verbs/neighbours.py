"""`foreword neighbours`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated

from foreword.display.results import Output, ResultTable
from foreword.settings.ranges import Count
from foreword.verbs._contract import Flag, Verb
from foreword.verbs._groups import ReadsModel


@dataclass(frozen=True)
class Neighbours(ReadsModel, Verb[Output]):
    """Show the words nearest to a word, by the cosine of their vectors.

        foreword.neighbours("runs/vectors", ["king", "queen"])

    Of a word2vec model these are its word vectors, of any other model its input embeddings, which
    know no context.

    Attributes:
        words: words to look up.
        top: neighbours to show per word.
    """

    words: Annotated[str | Sequence[str], Flag(is_argument=True, metavar="WORD...")]
    top: Count = 10

    def __call__(self) -> Output:
        from foreword.interop.word_table import word_table
        from foreword.text.pieces import SPACE

        words = [self.words] if isinstance(self.words, str) else self.words
        loaded = self.opened()
        table = word_table(loaded.module, loaded.tokenizer)
        neighbours_of = {word: table.nearest(word, self.top) for word in words}
        pieces = {w: table.split(w) for w in words if table.index_of(w) is None}
        remarks = [
            f"'{word}' is split into {SPACE.join(parts)}: the mean of their vectors"
            for word, parts in pieces.items()
            if len(parts) > 1
        ]
        rows = [
            {
                "word": word if rank == 0 else "",
                "neighbour": near.word,
                "cosine": f"{near.cosine:.4f}",
            }
            for word, nearest in neighbours_of.items()
            for rank, near in enumerate(nearest)
        ]
        content = {word: [asdict(n) for n in nearest] for word, nearest in neighbours_of.items()}
        return Output([*remarks, ResultTable(rows)], content)
