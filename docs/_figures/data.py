"""The pictures of data and scaling."""

from __future__ import annotations

import numpy as np

from _figures.drawing import DOCS, PLACEHOLDERS, canvas, to_svg
from foreword.cleaning.steps.near_duplicates import NearDuplicates
from foreword.data.mixture import effective_epochs
from foreword.formatting import power
from foreword.scaling.runs import read_runs

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
    """The losses of decoders by size, a parabola through those of each budget."""
    (runs,) = [
        one for one in read_runs(DOCS / "results/scaling/long.csv") if one.family == "decoder"
    ]
    with canvas(3.4, "scaling_fit") as (figure, axes):
        for number, group in enumerate(runs.budgets()):
            sizes, which = np.unique(runs.parameters[group], return_inverse=True)
            found = np.bincount(which, runs.loss[group]) / np.bincount(which)  # over seeds
            colour = PLACEHOLDERS[f"cell{number}"]
            axes.plot(sizes, found, "o", color=colour)
            near = np.argsort(np.abs(np.log(sizes / sizes[found.argmin()])))[:4]
            curve = np.polyfit(np.log(sizes[near]), found[near], 2)
            drawn = np.geomspace(sizes[near].min(), sizes[near].max(), 50)
            axes.plot(drawn, np.polyval(curve, np.log(drawn)), color=colour, linewidth=1)
            flops = power(float(runs.flops[group].mean())) + " FLOPs"
            place = {"xytext": (-6, 0), "textcoords": "offset points"}
            axes.annotate(
                flops, (sizes[0], found[0]), color=colour, ha="right", va="center", **place
            )
        axes.set_xscale("log")
        axes.set_xlim(6e4, 5e7)
        axes.set_xticks([1e6, 3e6, 1e7, 3e7], ["1 M", "3 M", "10 M", "30 M"])
        axes.minorticks_off()
        axes.set_xlabel("parameters")
        axes.set_ylabel("bits per byte")
        return to_svg(figure, "Losses of decoders by size at five budgets")
