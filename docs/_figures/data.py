"""The pictures of data and scaling."""

from __future__ import annotations

import numpy as np

from _figures.drawing import DOCS, PLACEHOLDERS, canvas, to_svg
from foreword.cleaning.steps.near_duplicates import NearDuplicates
from foreword.data.mixture import effective_epochs
from foreword.scaling.law import losses
from foreword.scaling.runs import read_runs
from foreword.scaling.surface import Surface

# 16. Data


def repetition() -> str:
    """What epochs are worth."""
    with canvas(2.7, "repetition") as (figure, axes):
        epochs = np.geomspace(1, 100, 60)
        axes.plot(epochs, epochs, color=PLACEHOLDERS["muted"], linestyle=":", label="new text")
        worth = [effective_epochs(one) for one in epochs]
        axes.plot(epochs, worth, color=PLACEHOLDERS["accent"], label="the same text")
        axes.set_xscale("log")
        axes.set_ylim(0, 20)
        axes.set_xticks([1, 4, 16, 40, 100], ["1", "4", "16", "40", "100"])
        axes.set_xlabel("epochs")
        axes.set_ylabel("worth, in epochs of new text")
        axes.legend(frameon=False)
        return to_svg(figure, "What reading a text again is worth")


def near_duplicates() -> str:
    """The chance that two texts are compared, by the sequences of words that they share."""
    with canvas(2.7, "near_duplicates") as (figure, axes):
        share = np.linspace(0, 1, 101)
        published, copies = (
            NearDuplicates(),
            NearDuplicates(ngram=3, buckets=80, hashes=4, min_similarity=0.3),
        )
        for name, step, colour in (("gopher", published, "muted"), ("copies", copies, "accent")):
            found = 1 - (1 - share**step.hashes) ** step.buckets
            axes.plot(share, found, color=PLACEHOLDERS[colour], label=name)
            same = (1 - np.array([0.05, 0.1, 0.2])) ** step.ngram
            marks = same / (2 - same)
            axes.plot(
                marks, 1 - (1 - marks**step.hashes) ** step.buckets, "o", color=PLACEHOLDERS[colour]
            )
        axes.set_xlabel("share of their word sequences that two texts share")
        axes.set_ylabel("chance to be compared")
        axes.legend(frameon=False)
        return to_svg(figure, "The chance that near duplicates are compared")


# 17. Scaling


def scaling_fit() -> str:
    """The losses of decoders by tokens and size, and the law fitted without the largest budget."""
    (runs,) = [
        one for one in read_runs(DOCS / "results/scaling/runs.csv") if one.family == "decoder"
    ]
    is_largest = runs.flops > 0.9 * runs.flops.max()
    seen = runs.where(~is_largest)
    surface = Surface.of(seen.parameters, seen.tokens, seen.loss)
    ended, objective = surface.descents(np.ones((1, len(seen.loss))))
    values = surface.in_plain_units(ended[0, np.argsort(objective[0])[:1]])
    with canvas(3.4, "scaling_fit") as (figure, axes):
        for number, size in enumerate(sorted(set(runs.parameters))):
            colour = PLACEHOLDERS[f"cell{number}"]
            of_size = runs.parameters == size
            label = f"{size / 1e6:.1f} M"
            for mark, which in (("o", of_size & ~is_largest), ("x", of_size & is_largest)):
                axes.plot(
                    runs.tokens[which],
                    runs.loss[which],
                    mark,
                    color=colour,
                    label=label if mark == "o" else None,
                )
            tokens = np.geomspace(runs.tokens[of_size].min(), runs.tokens[of_size].max(), 30)
            axes.plot(
                tokens,
                losses(values, float(size), tokens[:, None])[:, 0],
                color=colour,
                linewidth=1,
            )
        axes.set_xscale("log")
        axes.set_xticks([1e5, 3e5, 1e6, 3e6], ["0.1 M", "0.3 M", "1 M", "3 M"])
        axes.minorticks_off()
        axes.set_xlabel("tokens")
        axes.set_ylabel("bits per byte")
        axes.legend(frameon=False, title="parameters")
        return to_svg(figure, "Losses of decoders and the fitted law")
