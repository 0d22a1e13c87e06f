"""Pairs of texts that follow each other or do not, for the pair objectives of BERT and ALBERT."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Interval

from foreword.data.document_stream import ranges
from foreword.data.packing._binned import PackedPieces
from foreword.data.packing._contract import Packing
from foreword.data.packing._pairing import SentencePairs, Sentences
from foreword.data.rng import permute
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


class PackedPairs(PackedPieces):
    """A corpus as rows of pairs; see `Pairs`.

    Attributes:
        notes: a line where random texts cannot come from other documents, and one where many texts
            have no second one.
    """

    def __init__(self, settings: Pairs, shards: Shards, vocab: Vocab, seed: int) -> None:
        super().__init__(settings.length, shards, vocab, seed)
        self._settings = settings
        self._bos, self._eos = vocab.id(settings.bos), vocab.id(settings.eos)
        self._sentences = Sentences.of(shards, settings.length - 3)
        self._require_sentences()
        self.notes = [ONE_DOCUMENT] if settings.random and self._sentences.is_one_document else []
        self._firsts = [0]  # the number of each epoch's first row
        epoch = self._epoch(0)
        alone = float(np.mean(epoch.pieces.label < 0))
        if alone > MANY_ALONE:
            self.notes.append(ALONE.format(alone))
        self.tokens_per_epoch = int(epoch.pieces.sizes.sum())
        self.rows_per_epoch = len(epoch.order)
        self._require_row()

    def _require_sentences(self) -> None:
        """Raise a UserError if no pairs can be made."""
        shards = self._shards
        sentences = np.diff(shards.document_index)
        if (sentences > 0).any() and sentences.max() < 2:
            raise UserError(f"{shards.prefix}: {ONE_SENTENCE}")

    def _parts(self, ids: Array) -> tuple[PairLabels]:
        return (PairLabels(np.full_like(ids, -1)),)

    def _pieces(self, key: int) -> tuple[SentencePairs, Array]:
        pairs = self._sentences.pair_up(key, self._settings.random, self._settings.short)
        return pairs, pairs.sizes

    def _order(self, rows: int, key: int) -> Array:
        return permute(np.arange(rows), rows, key)

    def _write(self, into: Rows, pieces: SentencePairs, row: Array) -> None:
        assert into.segments is not None
        at = self._place(into, pieces.sizes, row)
        cells, which = ranges(at, pieces.sizes)
        into.segments.reshape(-1)[cells] = cells - at[which] >= (pieces.a_size + 2)[which]
        into.require(PairLabels).labels.reshape(-1)[at] = pieces.label
        ids, tokens = into.ids.reshape(-1), self._shards.tokens
        ids[at] = self._bos
        for start, begin, size in (
            (at + 1, pieces.a_start, pieces.a_size),
            (at + pieces.a_size + 2, pieces.b_start, pieces.b_size),
        ):
            ids[ranges(start, size)[0]] = np.take(tokens, ranges(begin, size)[0])
            ids[(start + size)[size > 0]] = self._eos

    def _find(self, numbers: Array) -> tuple[Array, Array]:
        """Return the epoch of each row and its number in it; epochs may differ in rows."""
        while numbers.max(initial=0) >= self._firsts[-1]:
            epoch = self._epoch(len(self._firsts) - 1)
            self._firsts.append(self._firsts[-1] + len(epoch.order))
        firsts = np.asarray(self._firsts)
        epochs = np.searchsorted(firsts, numbers, side="right") - 1
        return epochs, numbers - firsts[epochs]
