"""The pictures of n-grams, neural and recurrent language models."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from _figures.drawing import PLACEHOLDERS, canvas, squares, to_svg
from foreword.models.fixed_window import FixedWindow
from foreword.models.lstm import LSTM
from foreword.models.rnn import RNN
from foreword.models.transformer import Transformer
from foreword.ngrams.counting import count
from foreword.ngrams.scratch import Scratch
from foreword.ngrams.table import NgramTable
from foreword.nn.masks import (
    CausalMask,
)
from foreword.nn.model import ModelSettings
from foreword.settings import kinds
from foreword.testing.cases import vocab
from foreword.types import Array, Batch

# 1. n-grams

WORDS = ("the", "cat", "sat", "dog", "ran", "mat")
SENTENCES = "the cat sat / the cat ran / the cat sat / the dog sat"


def smoothings() -> str:
    """The distribution after "the" in four sentences, by each smoothing."""
    ids = [0 if word == "/" else 1 + WORDS.index(word) for word in f"/ {SENTENCES}".split()]
    is_word = np.arange(1 + len(WORDS)) > 0
    names = ("maximum_likelihood", "add_k", "kneser_ney", "modified_kneser_ney")
    height = 0.8
    with (
        tempfile.TemporaryDirectory() as folder,
        canvas(2.7, "smoothings") as (figure, axes),
    ):
        scratch = Scratch(Path(folder))
        levels = count(np.array(ids), 2, len(is_word), 0, scratch)
        for number, name in enumerate(names):
            smoothing = kinds.load("ngrams/smoothing", name)()
            table = NgramTable.of(levels, 0, smoothing, is_word, scratch)
            after = np.exp(table.distribution(np.array([[1]])))[0, 1:]  # of "the"
            places = np.arange(len(WORDS)) + (number - 1.5) * height / 4
            colour = PLACEHOLDERS[f"cell{number}"]
            axes.bar(places, after, height / 4, color=colour, label=name.replace("_", " "))
        axes.set_xticks(range(len(WORDS)), WORDS)
        axes.set_ylabel('P(word | "the")')
        axes.legend(frameon=False)
        return to_svg(figure, "Probability of each word after the, by four smoothings")


# 2. Neural language models


def influence(architecture: ModelSettings, length: int, positions: Sequence[int] = ()) -> Array:
    """Return how much the state of positions (all) depends on each token, (positions, length).

    The norms of the gradients of random sums of the states, of a model with random weights.
    """
    torch.manual_seed(3)
    backbone = architecture.build(vocab().size).double()
    ids = torch.arange(length)[None] % vocab().size
    batch = Batch(ids, torch.arange(length)[None], CausalMask())
    hidden = backbone.with_layer_gradients(batch)
    state_of = torch.randn(hidden.states.shape[-1], dtype=torch.double)
    rows = []
    for at in positions or range(length):
        (gradient,) = torch.autograd.grad(
            hidden.states[0, at] @ state_of, hidden.layers[0], retain_graph=True
        )
        rows.append(gradient[0].norm(dim=-1))
    return torch.stack(rows).numpy()


def sees() -> str:
    """What each position of a fixed window, a recurrent network and a decoder depends on."""
    size = {"d_model": 32, "tied": False}
    models = {
        "window of 4": FixedWindow(window=4, **size),
        "RNN": RNN(layers=1, **size),
        "Transformer": Transformer(layers=1, heads=2, **size),
    }
    panels = []
    for name, model in models.items():
        strength = influence(model, 14)
        panels.append((name, np.sqrt(strength / strength.max(axis=1, keepdims=True))))
    return squares(panels, "How much each state depends on each token")


# 3. Recurrent networks


def reach() -> str:
    """The gradient of the last state with respect to the inputs before it."""
    length = 48
    models = {
        "RNN": RNN(layers=1, d_model=64, tied=False),
        "LSTM": LSTM(layers=1, d_model=64, tied=False),
        "Transformer": Transformer(layers=1, heads=2, d_model=64, tied=False),
    }
    with canvas(2.7, "reach") as (figure, axes):
        for number, (name, model) in enumerate(models.items()):
            norms = influence(model, length, [length - 1])[0, ::-1]
            colour = PLACEHOLDERS[f"cell{number}"]
            axes.plot(range(1, length), norms[1:] / norms[1], color=colour, label=name)
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:.0e}")
        axes.set(xlabel="steps back", ylabel="norm, of that one step back")
        axes.legend(frameon=False)
        return to_svg(figure, "Gradient against steps back, random weights")
