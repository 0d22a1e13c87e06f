"""Pairs of texts that follow each other or do not, for the pair objectives of BERT and ALBERT."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Interval

from foreword.data.document_stream import ranges
from foreword.data.packing._bins import into_bins
from foreword.data.packing._contract import Packed, Packing
from foreword.data.packing._pairing import SentencePairs, Sentences
from foreword.data.rng import mix, permute
from foreword.data.shards import Shards
from foreword.errors import UserError
from foreword.settings.ranges import LARGEST, Share
from foreword.types import Array, PairLabels, Rows, Vocab

ONE_DOCUMENT = (
    "the text is one document, so the second texts sampled for pairs come from elsewhere in it; "
    "read.documents = 'paragraph' would make several of it"
)
MANY_ALONE = 0.25
ALONE = (
    "{:.0%} of the texts have no second text: their document has one sentence, or no two fit into "
    "a row; give longer documents (read.documents, prepare.sentences) or rows (packing.length)"
)
ONE_SENTENCE = (
    "a pair objective on a corpus whose documents have one sentence each; give longer documents "
    "(read.documents, prepare.sentences), or use packing.kind = 'documents' and an objective "
    "without pairs"
)


@dataclass(frozen=True)
class Pairs(Packing):
    """Pairs of texts, each `[CLS] A [SEP] B [SEP]`, as many in a row as fit.

    A and B are one or more whole sentences of one document, split at a random boundary; in a share
    `random` of the pairs, B comes from another document (from elsewhere in it if it is the only
    one) and begins at a random sentence, and the text that followed A goes to the next pair. So
    each epoch shows every sentence once, and some again as random ones; each epoch has its own
    boundaries and random texts. A sentence with no neighbour that fits stands alone,
    `[CLS] A [SEP]`, without a label. A sentence longer than a row is cut.

        documents  7 8 | 9,  4 | 5 6       length 8, [CLS] is 1, [SEP] is 2, [PAD] is 0
        ids        [ 1  7  8  2  9  2  0  0]  [ 1  4  2  7  8  2  0  0]  [ 1  5  6  2  0 ...
        segments   [ 0  0  0  0  1  1  0  0]  [ 0  0  0  1  1  1  0  0]  [ 0  0  0  0  0 ...
        labels     [ 0 -1 -1 -1 -1 -1 -1 -1]  [ 1 -1 -1 -1 -1 -1 -1 -1]  [-1 -1 -1 -1 -1 ...

    In the row, each pair is a document of its own, with positions from 0. Where no further pair
    fits there is padding: with long documents and sentences of 24 tokens, about 11 % of rows of
    128 and 4 % of rows of 512; with short documents almost none.

    Attributes:
        length: tokens in a row.
        bos: the special token before each pair; the pair is classified from its state.
        eos: the special token after each text.
        random: share of the pairs whose B comes from another document, labelled 1; the others are
            labelled 0.
        short: share of the pairs that are of a random length instead of as long as a row allows.

    Also called: sentence pairs.
    Reference: Devlin et al. 2019, section 3.1 and appendix A.2, with their code's
    create_pretraining_data; Lan et al. 2020, section 3.1.
    Differs from the paper: several pairs to a row, separated by the mask, where BERT pads; no pair
    is cut to fit, where BERT takes a sentence too many and cuts; a random B is about as long as
    the pair's own, and in a text of one document it comes from that document; a sentence left over
    at the end of a document gets no random B, so that labels keep to their share.
    """

    labels_pairs: ClassVar[bool] = True

    length: Annotated[int, Interval(ge=8, le=LARGEST)] = 128
    bos: str = "[CLS]"
    eos: str = "[SEP]"
    random: Share = 0.5
    short: Share = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("bos", "eos"):
            if not getattr(self, name):
                raise ValueError(f"{name}: a pair requires a special token here, got ''")

    def open(
        self, shards: Shards, vocab: Vocab, seed: int, batch: int, *, once: bool = False
    ) -> PackedPairs:
        """Return the corpus as rows of pairs; their order depends on the seed alone.

        Raises:
            UserError: the text is shorter than a row, its documents have one sentence each, or the
                tokenizer lacks a special token.
        """
        del batch, once  # a row does not depend on them
        return PackedPairs(self, shards, vocab, seed)


@dataclass(frozen=True)
class _Epoch:
    """The pairs of an epoch, grouped by row.

    Attributes:
        pairs: the pairs, row by row.
        first: the first pair of each row, and the end; (rows + 1,) int64.
        key: key of the order of the rows.
    """

    pairs: SentencePairs
    first: Array
    key: int

    def __len__(self) -> int:
        return len(self.first) - 1


class PackedPairs(Packed):
    """A corpus as rows of pairs; see `Pairs`.

    Attributes:
        notes: a line where random texts cannot come from other documents, and one where many texts
            have no second one.
    """

    def __init__(self, settings: Pairs, shards: Shards, vocab: Vocab, seed: int) -> None:
        self._settings, self._shards, self._vocab, self._seed = settings, shards, vocab, seed
        self._bos, self._eos = vocab.id(settings.bos), vocab.id(settings.eos)
        self._padding = vocab.special.get("[PAD]", 0)
        self._sentences = Sentences.of(shards, settings.length - 3)
        self._require_sentences()
        self.notes = [ONE_DOCUMENT] if settings.random and self._sentences.is_one_document else []
        self._firsts = [0]  # the number of each epoch's first row
        self._epochs: dict[int, _Epoch] = {}
        epoch = self._epoch(0)
        alone = float(np.mean(epoch.pairs.label < 0))
        if alone > MANY_ALONE:
            self.notes.append(ALONE.format(alone))
        self.tokens_per_epoch = int(epoch.pairs.sizes.sum())
        self.rows_per_epoch = len(epoch)
        if self.tokens_per_epoch < settings.length:
            raise UserError(
                f"{shards.prefix}: only {self.tokens_per_epoch:,} tokens, but a row needs "
                f"{settings.length:,}; give more text, or set a smaller packing.length"
            )

    def _require_sentences(self) -> None:
        """Raise a UserError if no pairs can be made."""
        shards = self._shards
        sentences = np.diff(shards.document_index)
        if (sentences > 0).any() and sentences.max() < 2:
            raise UserError(f"{shards.prefix}: {ONE_SENTENCE}")

    def rows(self, numbers: Array) -> Rows:
        numbers = np.asarray(numbers, dtype=np.int64)
        epochs, in_epoch = self._find(numbers)
        batch, length = len(numbers), self._settings.length
        ids = np.full((batch, length), self._padding, dtype=np.int64)
        documents = np.full((batch, length), -1, dtype=np.int64)
        positions, segments = np.zeros_like(ids), np.zeros_like(ids)
        labels = np.full_like(ids, -1)
        rows = Rows(ids, documents, positions, numbers, segments, (PairLabels(labels),))
        for number in np.unique(epochs):
            where = np.flatnonzero(epochs == number)
            epoch = self._epoch(int(number))
            order = permute(in_epoch[where], len(epoch), epoch.key)
            pairs, group = ranges(epoch.first[order], np.diff(epoch.first)[order])
            self._write(rows, epoch.pairs.select(pairs), where[group])
        if ids.max(initial=0) >= self._vocab.size:
            raise UserError(
                f"{self._shards.prefix}: holds token {ids.max():,}, but the tokenizer has only "
                f"{self._vocab.size:,}; the shards were made with another one"
            )
        return rows

    def _write(self, into: Rows, pairs: SentencePairs, row: Array) -> None:
        """Write pairs into their rows, one after the other; pairs of a row are adjacent."""
        assert into.segments is not None
        length, sizes = self._settings.length, pairs.sizes
        is_first = np.ones(len(row), dtype=bool)
        is_first[1:] = row[1:] != row[:-1]
        before = np.cumsum(sizes) - sizes
        first = np.maximum.accumulate(np.where(is_first, np.arange(len(row)), 0))
        at = row * length + before - before[first]  # where each pair begins in all rows together
        cells, which = ranges(at, sizes)
        into.documents.reshape(-1)[cells] = (np.arange(len(row)) - first)[which]
        into.positions.reshape(-1)[cells] = cells - at[which]
        into.segments.reshape(-1)[cells] = cells - at[which] >= (pairs.a_size + 2)[which]
        into.require(PairLabels).labels.reshape(-1)[at] = pairs.label
        ids, tokens = into.ids.reshape(-1), self._shards.tokens
        ids[at] = self._bos
        for start, begin, size in (
            (at + 1, pairs.a_start, pairs.a_size),
            (at + pairs.a_size + 2, pairs.b_start, pairs.b_size),
        ):
            ids[ranges(start, size)[0]] = np.take(tokens, ranges(begin, size)[0])
            ids[(start + size)[size > 0]] = self._eos

    def _find(self, numbers: Array) -> tuple[Array, Array]:
        """Return the epoch of each row and its number in it; epochs may differ in rows."""
        while numbers.max(initial=0) >= self._firsts[-1]:
            self._firsts.append(self._firsts[-1] + len(self._epoch(len(self._firsts) - 1)))
        firsts = np.asarray(self._firsts)
        epochs = np.searchsorted(firsts, numbers, side="right") - 1
        return epochs, numbers - firsts[epochs]

    def _epoch(self, number: int) -> _Epoch:
        """Return an epoch's pairs in rows; the last two epochs are cached."""
        if number not in self._epochs:
            key = int(mix(mix(np.array([self._seed]).astype(np.uint64)) + np.uint64(number))[0])
            pairs = self._sentences.pair_up(key, self._settings.random, self._settings.short)
            bins = into_bins(pairs.sizes, self._settings.length)
            first = np.concatenate([[0], np.cumsum(np.bincount(bins))])
            epoch = _Epoch(pairs.select(np.argsort(bins, kind="stable")), first, key)
            latest = sorted(self._epochs)[-1:]
            self._epochs = {n: self._epochs[n] for n in latest} | {number: epoch}
        return self._epochs[number]
