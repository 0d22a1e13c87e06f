"""`foreword neighbours`: find the words with the nearest vectors."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from foreword.cli import console
from foreword.cli._model_options import Device, Json, Run, open_model
from foreword.ranges import Count


def neighbours(
    run: Run,
    words: Annotated[list[str], typer.Argument(metavar="WORD...", help="Words to look up.")],
    top: Annotated[Count, typer.Option(help="Neighbours to show per word.")] = 10,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Show the words nearest to a word, by the cosine of their vectors.

    Of a word2vec model these are its word vectors, of any other model its input embeddings, which
    know no context.
    """
    from foreword.interop.word_table import word_table
    from foreword.text.pieces import SPACE

    loaded = open_model(run, device)
    table = word_table(loaded.module, loaded.tokenizer)
    neighbours_of = {word: table.nearest(word, top) for word in words}
    for word in words:
        pieces = table.split(word) if table.index_of(word) is None else ()
        if len(pieces) > 1:
            console.say(f"'{word}' is split into {SPACE.join(pieces)}: the mean of their vectors")
    if json:
        console.emit(
            {word: [asdict(n) for n in nearest] for word, nearest in neighbours_of.items()}
        )
        return
    rows = [
        [word if rank == 0 else "", near.word, f"{near.cosine:.4f}"]
        for word, nearest in neighbours_of.items()
        for rank, near in enumerate(nearest)
    ]
    console.table("", ["word", "neighbour", "cosine"], rows)
