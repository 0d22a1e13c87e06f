from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from foreword.data.packing.stream import Stream
from foreword.data.rng import RowRng
from foreword.errors import UserError
from foreword.layouts.decoder import Decoder
from foreword.objectives.causal import Causal
from foreword.types import NextToken
from tests.data.packing import corpora


def test_streams_are_contiguous_and_wrap(tmp_path: Path) -> None:
    shards = corpora.shards(tmp_path, [40, 0, 25, 33])
    batch, length, steps = 3, 8, 12
    packed = Stream(length).open(shards, corpora.vocab(), 1, batch)
    text = [*range(10, 50), 6, 6, *range(50, 75), 6, *range(75, 108), 6]
    assert packed.tokens_per_epoch == len(text) == 102
    rows = packed.rows(np.arange(batch * steps))
    for stream in range(batch):
        part = text[stream * 34 : (stream + 1) * 34]
        expected = (part * 4)[: steps * length]
        assert rows.ids[stream::batch].ravel().tolist() == expected
        assert (
            rows.require(NextToken).ids[stream::batch].tolist()
            == (part * 4)[length : len(expected) + 1 : length]
        )


def test_streams_go_on_with_the_documents_in_another_order(tmp_path: Path) -> None:
    lengths = [40, 0, 25, 33, 7, 19, 3, 30]
    shards = corpora.shards(tmp_path, lengths)
    packed = Stream(8, shuffle="documents").open(shards, corpora.vocab(), 1, 3)
    size, epochs, steps = 165 // 3, 4, 28  # tokens of a stream in an epoch
    assert packed.tokens_per_epoch == 3 * size
    rows = packed.rows(np.arange(3 * steps))
    streams = [rows.ids[stream::3].ravel() for stream in range(3)]
    for stream, read in enumerate(streams):
        following = rows.require(NextToken).ids[stream::3]
        assert following[:-1].tolist() == read[8::8].tolist()
    # An epoch is the documents, whole, one stream's part after the other.
    ends = np.cumsum(lengths) + 9
    orders = set()
    for epoch in range(epochs):
        text = np.concatenate([read[epoch * size : (epoch + 1) * size] for read in streams])
        assert sorted(text[text >= 10].tolist()) == list(range(10, 167))
        assert (text == 6).sum() == len(lengths)
        is_end = np.isin(text, ends)
        assert (text[1:][is_end[:-1]] == 6).all()
        assert (text[1:] == text[:-1] + 1)[(text[:-1] >= 10) & ~is_end[:-1]].all()
        orders.add(tuple(text.tolist()))
    assert len(orders) == epochs


def test_streams_of_unequal_sizes_show_every_token(tmp_path: Path) -> None:
    shards = corpora.shards(tmp_path, [101])
    packed = Stream(4, eos="").open(shards, corpora.vocab(), 1, 3)
    rows = packed.rows(np.arange(3 * 9))
    assert set(rows.ids.ravel().tolist()) == set(range(10, 111))


def test_every_token_of_a_stream_is_predicted_from_the_one_before(tmp_path: Path) -> None:
    packed = Stream(4).open(corpora.shards(tmp_path, [29, 33]), corpora.vocab(), 1, 2)
    rows = packed.rows(np.arange(2 * 8))  # 32 tokens of each stream
    example = Causal().corrupt(rows, RowRng(1, rows.numbers), corpora.vocab())
    batch = Decoder().arrange(example, corpora.vocab())
    assert (batch.weights == 1).all()
    for stream in (0, 1):
        read, predicted = (x[stream::2].ravel() for x in (batch.ids, batch.targets))
        assert predicted.tolist() == np.roll(read, -1).tolist()


def test_a_stream_shorter_than_a_row_is_refused(tmp_path: Path) -> None:
    shards = corpora.shards(tmp_path, [31])
    Stream(8).open(shards, corpora.vocab(), 1, 4)
    with pytest.raises(UserError, match="each of the 5 streams needs 40"):
        Stream(8).open(shards, corpora.vocab(), 1, 5)
