"""Each row gets one of several objectives: UL2's mixture of denoisers."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from foreword.data.rng import RowRng
from foreword.data.rows import positions_within
from foreword.kinds import Part
from foreword.objectives._contract import SourceForm, mode_id
from foreword.objectives._room import longest, require_room
from foreword.objectives._source_target import SourceTarget, compact, example_of, first_and_last
from foreword.objectives.prefix import Prefix
from foreword.objectives.span_corruption import SpanCorruption
from foreword.ranges import Positive
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
    """One of several objectives is drawn for each row, and a mode token says to the model which.

        ids      [ 7  8  9  4  5  6]       <extra_id_0> is 50, </s> is 1
        inputs   [61  7  8  9 50  1]       <extra_id_99> is 60, <extra_id_98> is 61
        targets  [50  4  5  6  1]          <extra_id_97> is 62

    With layouts `encoder_decoder`, `prefix` and `decoder`. Unsaid, these are UL2's seven denoisers,
    each as likely: R, short spans and few hidden; X, long spans or many hidden; S, a text to go on
    with. Above it is X, for half of the text is hidden.

    The rows of a group are as wide as its widest: of UL2's, 32 of 512 tokens at once, padding is
    20 % of the source and 43 % of the target in an `encoder_decoder`, 18 % joined in one row.

    Attributes:
        objectives: what is drawn from; each with a source and a target.
        shares: how often each is drawn, in proportion; all as often if empty.
        modes: the special token put before each document's source, for each objective, "" for
            none; no modes if empty. A sentinel so used marks no span.

    Reference: Tay et al. 2022 ("UL2"), section 3.1 and table 2.
    Differs from the paper: modes are single tokens, in the released model the words "[NLU]",
    "[NLG]" and "[S2S]".
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
            raise ValueError(f"objectives: must read a source and write a target, got {wrong[0]}")
        for name in ("shares", "modes"):
            given, wanted = len(getattr(self, name)), len(self.objectives)
            if given not in (0, wanted):
                raise ValueError(f"{name}: must be {wanted}, one for each objective, got {given}")

    @property
    def end(self) -> str:
        """What closes inputs and targets, by the first objective."""
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
        """Makes sure that each objective has room in a row.

        Raises:
            ValueError: one has none in rows of `length` tokens.
        """
        require_room("objectives", self.objectives, length)

    def max_lengths(self, length: int, text: int) -> MaxLengths:
        """Return the greatest lengths of its objectives, a mode token before each source."""
        most = longest(self.objectives, length, text)
        mode = 1 if any(self.modes) else 0
        return MaxLengths(most.source + mode, most.target, most.joined + mode)

    def corrupt(self, rows: Rows, rng: RowRng, vocab: Vocab) -> Example:
        """Each row as its objective makes it.

        Raises:
            UserError: the tokenizer lacks a mode token, or what an objective needs.
        """
        modes = [mode_id(name, vocab) for name in self.modes or ("",) * len(self.objectives)]
        used = [mode for mode in modes if mode is not None]
        free = replace(vocab, sentinels=vocab.sentinels[~np.isin(vocab.sentinels, used)])
        shares = np.asarray(self.shares or np.ones(len(self.objectives)))
        edges = np.cumsum(shares)[:-1] / shares.sum()
        chosen = np.searchsorted(edges, rng.uniform(1)[:, 0], side="right")  # (batch,)
        components: list[tuple[Array, Example]] = []
        for n in np.unique(chosen):
            where = np.flatnonzero(chosen == n)
            example = self.objectives[n].corrupt(_take(rows, where), rng.of(where), free)
            assert example.source is not None
            source = _with_mode(example.source, modes[n])
            components.append((where, replace(example, source=source)))
        source = _gather(
            [(where, example.source) for where, example in components if example.source]
        )
        return example_of(
            source, _gather([(where, example.target) for where, example in components])
        )


def _take(rows: Rows, which: Array) -> Rows:
    return Rows(rows.ids[which], rows.documents[which], rows.positions[which], rows.numbers[which])


def _with_mode(source: Tokens, mode: int | None) -> Tokens:
    """The source with the mode token before each document."""
    if mode is None:
        return source
    is_first, _ = first_and_last(source.documents)
    return compact(source.documents, (mode, is_first), (source.ids, source.documents >= 0))


def _gather(components: list[tuple[Array, Tokens]]) -> Tokens:
    """The rows of all parts, each where it belongs, as wide as the widest."""
    shape = (sum(len(where) for where, _ in components), max(t.ids.shape[1] for _, t in components))
    ids, documents = np.zeros(shape, dtype=np.int64), np.full(shape, -1, dtype=np.int64)
    for where, tokens in components:
        ids[where, : tokens.ids.shape[1]] = tokens.ids
        documents[where, : tokens.ids.shape[1]] = tokens.documents
    return Tokens(ids, documents, positions_within(documents))
