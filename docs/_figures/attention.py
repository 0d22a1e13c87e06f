"""The pictures of attention, the Transformer, cheaper attention and long context."""

from __future__ import annotations

import csv
from dataclasses import replace

import numpy as np
import torch

from _figures.drawing import DOCS, PLACEHOLDERS, canvas, squares, to_svg
from foreword.nn.attentions.bigbird import BigBird
from foreword.nn.masks import (
    CausalMask,
    FullMask,
    GlobalMask,
    MemoryMask,
    PermutationMask,
    WindowMask,
)
from foreword.nn.positions.sinusoidal import Sinusoidal
from foreword.nn.source_attentions.dot import Dot
from foreword.settings import kinds
from foreword.testing import layouts as layout_cases
from foreword.testing.cases import vocab
from foreword.types import PredictionOrder

# 4. Attention

SOURCE, TARGET = ("the", "black", "cat", "sleeps"), ("le", "chat", "noir", "dort")
MEANT = (0, 2, 1, 3)  # the word of the source that each word of the target translates


def alignment() -> str:
    """Luong's inner products on states made by hand, of three lengths."""
    source = torch.eye(len(SOURCE))[None] + 0.15
    target = source[:, list(MEANT)]
    attention = Dot().build(source.shape[-1])
    is_token = torch.ones(source.shape[:2], dtype=torch.bool)
    panels = []
    for scale in (0.0, 1.0, 2.0):
        queries, keys = target * scale, source * scale
        _, weights = attention(queries, keys, attention.prepare(keys), is_token)
        panels.append((f"states times {scale:g}", weights[0].numpy()))
    return squares(panels, "Attention of each target word to the source", TARGET, SOURCE)


# 7. The Transformer

SOURCES, TARGETS = [5, 3], [4, 3]  # tokens of each document of a row
ORDER = [2, 0, 4, 1, 3, 6, 7, 5]  # when each position of a row is predicted
FORMS = {"source": ", source and target", "rows": ", masked rows", "order": ", in an order"}


def layouts() -> str:
    """The mask of every layout, of two documents in one row: its rows look at its columns."""
    panels = []
    for name in kinds.names("layouts"):
        layout = kinds.load("layouts", name)()
        for form in layout_cases.accepted_forms(layout):
            documents = [[10 + i for i in range(n)] for n in SOURCES]
            targets = [[10 + i for i in range(n)] for n in TARGETS]
            example = layout_cases.example_of(form, documents, targets)
            if form == "order":
                example = replace(example, parts=(PredictionOrder(np.array([ORDER])),))
            batch = layout.arrange(example, vocab()).to("cpu")
            name_of = name.replace("_", " ") + FORMS.get(form, "")
            n, cpu = batch.ids.shape[1], torch.device("cpu")
            panels.append((name_of, batch.mask.dense(1, n, n, cpu)[0, 0].numpy() * 1.0))
            if batch.source is not None:
                m = batch.source.ids.shape[1]
                cross = batch.cross_mask.dense(1, n, m, cpu)[0, 0].numpy() * 1.0
                panels[-1] = (name.replace("_", " "), panels[-1][1])
                panels.append(("target looks at source", cross))
    panels.sort(key=lambda panel: panel[1].shape[0])
    return squares(panels, "The attention mask of each layout", across=4)


def sinusoids() -> str:
    """Sinusoidal positions: a row for each position, a column for each dimension."""
    scheme = Sinusoidal(base=1000.0).build(24, 1, 24, layers=1, is_causal=True)
    embedded = scheme.embed(torch.arange(16)[None])[0]
    return squares([("", (embedded.numpy() + 1) / 2)], "Sinusoidal positions")


# 8. Cheaper attention


def sparse() -> str:
    """What each kind of attention looks at, in a row of 24."""
    n, cpu = 24, torch.device("cpu")
    window = WindowMask(3)
    (bigbird,) = BigBird(block=2, random=1, ends=1).build(1, 16, 1)
    masks = {
        "full": FullMask(),
        "window": window,
        "window, causal": window & CausalMask(),
        "window and 2 global": window | GlobalMask(2),
        "BigBird": bigbird.mask(n, n),
    }
    panels = [(name, mask.dense(1, n, n, cpu)[0, 0].numpy() * 1.0) for name, mask in masks.items()]
    return squares([*panels, ("Linformer, 6 keys", np.ones((n, 6)))], "Sparse attention", cell=8)


def time_of_length() -> str:
    """The measured time of one layer's attention by the length of its row."""
    with (DOCS / "results" / "attention_length.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["what"] == "attention"]
    with canvas(3.0, "length") as (figure, axes):
        for number, kind in enumerate(dict.fromkeys(row["kind"] for row in rows)):
            own = [row for row in rows if row["kind"] == kind]
            x, y = ([float(row[key]) for row in own] for key in ("length", "seconds"))
            axes.plot(x, y, color=PLACEHOLDERS[f"cell{number}"], label=kind.replace("_", " "))
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:.0e}")
        axes.set(xlabel="length of the row", ylabel="seconds, forward and backward")
        axes.legend(frameon=False, fontsize=8)
        return to_svg(figure, "Time of attention by length")


# 10. Long context and permutation

PERMUTED = (-1, 2, 0, -1, 1, -1)  # places in the order of prediction; -1 is context


def permutation() -> str:
    """XLNet's two masks for one order of prediction, and a row with Transformer-XL's memory."""
    n, cpu = len(PERMUTED), torch.device("cpu")
    order = torch.tensor([PERMUTED])
    content = PermutationMask(order).dense(1, n, n, cpu)[0, 0].numpy()
    query = PermutationMask(order, includes_self=False).dense(1, n, n, cpu)[0, 0].numpy()
    memory = MemoryMask(CausalMask(), 4).dense(1, n, 4 + n, cpu)[0, 0].numpy()
    query = query & (np.array(PERMUTED) >= 0)[:, None]
    words = ["context" if place < 0 else f"predicted as no. {place + 1}" for place in PERMUTED]
    panels = [("content stream", content), ("query stream", query), ("a memory of 4", memory)]
    return squares(
        [(name, mask.astype(float)) for name, mask in panels],
        "Masks of XLNet and Transformer-XL",
        words,
    )
