"""`foreword score`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from foreword.display.results import Facts, Part, Result, ResultTable, Text
from foreword.errors import UserError
from foreword.formatting import probability, unknown_share_note
from foreword.settings.ranges import Count
from foreword.verbs._contract import ARGUMENT, PathName, Verb
from foreword.verbs._groups import ReadsModel, ReadsText, ShowsProgress

if TYPE_CHECKING:
    from foreword.data.text_files import ReadCounts
    from foreword.evaluation.perplexity import ScoreTotals
    from foreword.evaluation.scoring import TextScore

MAX_TOKENS_SHOWN = 60  # data() has all


@dataclass(frozen=True, repr=False)
class ScoredResult(Result):
    """The probability of a text, or of the texts of files.

    Attributes:
        totals: log-probability, perplexity and counts.
        score: each token of a text; None for files.
        first_token_given: what the first token of a text is conditioned on; None for files.
        read: what was read of files; None for a text.
    """

    totals: ScoreTotals
    score: TextScore | None = None
    first_token_given: str | None = None
    read: ReadCounts | None = None

    def tables(self) -> Sequence[Part]:
        """Return the first tokens of a text, and the totals."""
        from foreword.data.prepared_text import data_warnings

        totals, parts = self.totals, list[Part]()
        if self.score is not None:
            parts += _tokens(self.score)
        least, most = (" at least", " at most") if totals.is_bound else ("", "")
        facts = {
            "first token given": self.first_token_given,
            "measure": totals.measure,
            f"nats{least}": -totals.nats,
            f"bits{least}": -totals.bits,
            "pseudo-perplexity" if totals.is_pseudo else f"perplexity{most}": totals.perplexity,
            f"bits per byte{most}": totals.bits_per_byte,
            "tokens": totals.tokens,
            "of which ends of texts": totals.ends,
            "bytes": totals.bytes,
            "documents": totals.documents if totals.documents > 1 else None,
        }
        if self.read is not None:
            facts |= {"files read": self.read.files, **data_warnings(asdict(self.read))}
        parts.append(Facts(facts))
        if totals.unscored:
            parts.append(f"{totals.unscored:,} first tokens have no context and are not scored")
        if totals.unknown:
            parts.append(unknown_share_note(totals.unknown / (totals.tokens - totals.ends)))
        return parts

    def data(self) -> dict[str, Any]:
        """Return the totals, and each token of a text."""
        document: dict[str, Any] = self.totals.as_row()
        if self.read is not None:
            document["read"] = asdict(self.read)
        if self.score is not None:
            document["first_token_given"] = self.first_token_given
            document["scored"] = self.score.scored
        return document


def _tokens(score: TextScore) -> list[Part]:
    rows = [
        {
            "token": token,
            "nats": f"{-value:.3f}",
            "bits": f"{-value / math.log(2):.3f}",
            "probability": probability(math.exp(value)),
        }
        for token, value in zip(score.tokens[:MAX_TOKENS_SHOWN], score.log_probs, strict=False)
    ]
    more = len(score.tokens) - MAX_TOKENS_SHOWN
    note = [Text(f"and {more:,} more tokens; --json lists them all")] if more > 0 else []
    return [ResultTable(rows), *note]


@dataclass(frozen=True)
class Score(ReadsText, ShowsProgress, ReadsModel, Verb[ScoredResult]):
    """Score a text token by token, or a file: log-probability, perplexity, bits per byte.

        foreword.score("runs/books", "The old man went to sea.").totals.perplexity

    Attributes:
        text: the text to score.
        file: score a file or folder instead, and show totals only.
        source: the source that the text answers, for a model with one.
        stride: tokens from window to window; default: half a window.
    """

    text: Annotated[str | None, ARGUMENT] = None
    _: KW_ONLY
    file: PathName | None = None
    source: str | None = None
    stride: Count | None = None

    def __call__(self) -> ScoredResult:
        from foreword.evaluation import scoring

        if self.text is None and self.file is None:
            raise UserError('give a text to score, or --file FILE: foreword score RUN "A text."')
        if self.text is not None and self.file is not None:
            raise UserError("give a text to score or --file FILE, not both")
        if self.file is not None and self.source is not None:
            raise UserError("--source requires one text; score the texts of a file one by one")
        if self.file is not None:
            return self._of_file(Path(self.file))
        self.refuse_reading("requires --file")
        prompted = self.opened().trained
        score = scoring.score(prompted, self.text or "", self.source, self.stride)
        return ScoredResult(score.totals, score, scoring.first_context(prompted))

    def _of_file(self, file: Path) -> ScoredResult:
        """Return the totals over a file or folder, and what was read of it."""
        from foreword.evaluation.scoring import score_files

        prompted = self.opened().trained
        how = self.read_as(prompted.recipe.read)
        prompted = replace(prompted, recipe=replace(prompted.recipe, read=how))
        with self.display() as display:
            totals, read = score_files(prompted, [file], self.stride, display.stage("scoring"))
        if not totals.tokens:
            raise UserError(f"{file}: no token in it can be scored")
        return ScoredResult(totals, read=read)
