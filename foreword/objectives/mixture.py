"""A mixture of objectives, one sampled for each row: UL2's mixture of denoisers."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from foreword.data.rng import RowRng
from foreword.data.rows import positions_within
from foreword.objectives._contract import SourceForm, mode_id
from foreword.objectives._room import longest, require_room
from foreword.objectives._source_target import SourceTarget, compact, example_of, first_and_last
from foreword.objectives.prefix import Prefix
from foreword.objectives.span_corruption import SpanCorruption
from foreword.settings.kinds import Part
from foreword.settings.ranges import Positive
from foreword.types import Array, Example, MaxLengths, Rows, Tokens, Vocab

R, X, S = "<extra_id_99>", "<extra_id_98>", "<extra_id_97>"

DENOISERS = (
    SpanCorruption(0.15, 3.0),
    SpanCorruption(0.15, 8.0),
    SpanCorruption(0.5, 3.0),
    SpanCorruption(0.5, 8.0),
    SpanCorruption(0.15, 64.0),
    SpanCorruption(0.5, 64.0),
    Prefix(0.25),
)


@dataclass(frozen=True)
class Mixture(SourceTarget):
    """One of several objectives is sampled for each row; a mode token tells the model which.

        ids      [ 7  8  9  4  5  6]       <extra_id_0> is 50, </s> is 1
        inputs   [61  7  8  9 50  1]       <extra_id_99> is 60, <extra_id_98> is 61
        targets  [50  4  5  6  1]          <extra_id_97> is 62

    With layouts `encoder_decoder`, `prefix` and `decoder`. The default is UL2's seven denoisers,
    equally likely: R, short spans at a low rate; X, long spans or a high rate; S, a text to
    continue. The example is X, since half of the text is masked.

    The rows of a group are padded to its widest: with UL2's denoisers and 32 rows of 512 tokens,
    padding is 20 % of the source and 43 % of the target in an `encoder_decoder`, 18 % when joined
    in one row.

    Attributes:
        objectives: the objectives to sample from; each has a source and a target.
        shares: the relative frequency of each objective; uniform if empty.
        modes: for each objective, the special token before each document's source, "" for none; no
            modes if empty. A sentinel used as a mode marks no span.

    Also called: mixture of denoisers.
    Reference: Tay et al. 2022 ("UL2"), section 3.1 and table 2.
    Differs from the paper: modes are single tokens; in the released model they are the words
    "[NLU]", "[NLG]" and "[S2S]".
    """

    objectives: tuple[SourceTarget, ...] = field(
        default=DENOISERS, metadata={"part": Part("objectives")}
    )
    shares: tuple[Positive, ...] = ()
    modes: tuple[str, ...] = (R, R, X, X, X, X, S)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.objectives:
            raise ValueError("objectives: must name at least one")
        wrong = [type(o).__name__ for o in self.objectives if not isinstance(o, SourceTarget)]
        if wrong:
            raise ValueError(f"objectives: each must have a source and a target, got {wrong[0]}")
        for name in ("shares", "modes"):
            actual, expected = len(getattr(self, name)), len(self.objectives)
            if actual not in (0, expected):
                raise ValueError(f"{name}: must be {expected}, one per objective, got {actual}")

    @property
    def end(self) -> str:
        """The end token of the first objective."""
        return self.objectives[0].end

    @property
    def source_forms(self) -> tuple[SourceForm, ...]:
        """The forms of all objectives, each with its mode."""
        modes = self.modes or ("",) * len(self.objectives)
        forms = [
            replace(form, mode=mode)
            for objective, mode in zip(self.objectives, modes, strict=True)
            for form in objective.source_forms
        ]
        return tuple(dict.fromkeys(forms))

    def require_room(self, length: int) -> None:
        require_room("objectives", self.objectives, length)

    def max_lengths(self, length: int, text: int) -> MaxLengths:
        """Return the greatest lengths of its objectives, mode tokens included."""
        lengths = longest(self.objectives, length, text)
        mode = 1 if any(self.modes) else 0
        return MaxLengths(lengths.source + mode, lengths.target, lengths.joined + mode)

    def corrupt(self, rows: Rows, rng: RowRng, vocab: Vocab) -> Example:
        """Return the examples of all rows, each made by its sampled objective.

        Raises:
            UserError: the tokenizer lacks a mode token or a token that an objective needs.
        """
        # Sentinels that serve as modes are not available to mark spans.
        modes = [mode_id(name, vocab) for name in self.modes or ("",) * len(self.objectives)]
        used = [mode for mode in modes if mode is not None]
        free = replace(vocab, sentinels=vocab.sentinels[~np.isin(vocab.sentinels, used)])
        # One uniform draw selects the objective of each row.
        shares = np.asarray(self.shares or np.ones(len(self.objectives)))
        edges = np.cumsum(shares)[:-1] / shares.sum()
        chosen = np.searchsorted(edges, rng.uniform(1)[:, 0], side="right")  # (batch,)
        sources: list[tuple[Array, Tokens]] = []
        targets: list[tuple[Array, Tokens]] = []
        for n in np.unique(chosen):
            indices = np.flatnonzero(chosen == n)
            example = self.objectives[n].corrupt(_select(rows, indices), rng.select(indices), free)
            assert example.source is not None
            sources.append((indices, _with_mode(example.source, modes[n])))
            targets.append((indices, example.target))
        return example_of(_merge(sources), _merge(targets))


def _select(rows: Rows, which: Array) -> Rows:
    return Rows(rows.ids[which], rows.documents[which], rows.positions[which], rows.numbers[which])


def _with_mode(source: Tokens, mode: int | None) -> Tokens:
    """Return the source with the mode token before each document."""
    if mode is None:
        return source
    is_first, _ = first_and_last(source.documents)
    return compact(source.documents, (mode, is_first), (source.ids, source.documents >= 0))


def _merge(groups: list[tuple[Array, Tokens]]) -> Tokens:
    """Return the rows of all groups at their indices, padded to the widest."""
    shape = (sum(len(indices) for indices, _ in groups), max(t.ids.shape[1] for _, t in groups))
    ids, documents = np.zeros(shape, dtype=np.int64), np.full(shape, -1, dtype=np.int64)
    for indices, tokens in groups:
        ids[indices, : tokens.ids.shape[1]] = tokens.ids
        documents[indices, : tokens.ids.shape[1]] = tokens.documents
    return Tokens(ids, documents, positions_within(documents))
