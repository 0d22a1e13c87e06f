"""`foreword neighbours`: the words whose vectors are nearest to a word's."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from foreword.cli import console
from foreword.cli._model_options import Device, Json, Run, open_model
from foreword.ranges import Count


def neighbours(
    run: Run,
    words: Annotated[list[str], typer.Argument(metavar="WORD...", help="Words to look for.")],
    top: Annotated[Count, typer.Option(help="Neighbours to show of each.")] = 10,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Show the words nearest to a word, by the cosine of their vectors.

    Of word2vec these are its vectors; of any other model the embeddings that enter it, before it
    has read a context.
    """
    from rich.markup import escape

    from foreword.interop.word_table import word_table
    from foreword.text.pieces import SPACE

    loaded = open_model(run, device)
    table = word_table(loaded.module, loaded.tokenizer)
    found = {word: table.nearest(word, top) for word in words}
    for word in words:
        pieces = table.cut(word) if table.place(word) is None else ()
        if len(pieces) > 1:
            console.say(f"'{word}' is cut into {SPACE.join(pieces)}: the mean of their vectors")
    if json:
        console.emit({word: [asdict(near) for near in nearest] for word, nearest in found.items()})
        return
    rows = [
        [escape(word) if rank == 0 else "", escape(near.word), f"{near.cosine:.4f}"]
        for word, nearest in found.items()
        for rank, near in enumerate(nearest)
    ]
    console.table("", ["word", "neighbour", "cosine"], rows)
