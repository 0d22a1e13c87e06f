"""The pictures of fine-tuning, what was learned, and post-training."""

from __future__ import annotations

import csv

import numpy as np
import torch

from _figures.drawing import DOCS, PLACEHOLDERS, canvas, to_svg
from foreword.tuning.tasks.prefer import Prefer

# 14. Fine-tuning


def _read(name: str) -> list[dict[str, str]]:
    with (DOCS / "book" / "data" / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def loss_surface() -> str:
    """The plane that `foreword drift` measured, book/data/loss_plane.csv."""
    rows = _read("loss_plane.csv")
    x, y = (sorted({float(row[axis]) for row in rows}) for axis in ("x", "y"))
    loss = {(float(row["x"]), float(row["y"])): float(row["loss"]) for row in rows}
    surface = np.array([[loss[a, b] for a in x] for b in y])
    with canvas(3.4, "loss_surface") as (figure, axes):
        levels = np.geomspace(max(surface.min(), 0.05), surface.max(), 12)
        drawn = axes.contour(
            x, y, surface, levels=levels, colors=PLACEHOLDERS["accent"], linewidths=0.8
        )
        axes.clabel(drawn, fmt="%.2g", fontsize=7)
        for place, name in (
            ((0, 0), "pretrained"),
            ((1, 0), "tuned"),
            ((0, 1), "from random weights"),
        ):
            axes.plot(*place, "o", color=PLACEHOLDERS["second"])
            axes.annotate(name, place, xytext=(5, 5), textcoords="offset points")
        axes.set_xlabel("towards the tuned weights")
        axes.set_ylabel("towards those from random weights")
        return to_svg(figure, "The loss on a plane of weights")


# 15. What was learned


def exposure() -> str:
    """The exposure of planted secrets, book/data/exposure.csv."""
    with canvas(2.9, "exposure") as (figure, axes):
        for number, model in enumerate(("trained", "random weights")):
            rows = [row for row in _read("exposure.csv") if row["model"] == model]
            x = np.array([float(row["planted"]) for row in rows]) * (1 + 0.12 * number)
            colour = PLACEHOLDERS["accent" if number == 0 else "muted"]
            axes.plot(
                x, [float(row["bits"]) for row in rows], "o", color=colour, label=model, alpha=0.8
            )
        axes.axhline(np.log2(1024), color=PLACEHOLDERS["muted"], linestyle="--", linewidth=1)
        axes.axhline(1 / np.log(2), color=PLACEHOLDERS["muted"], linestyle=":", linewidth=1)
        axes.set_xscale("log", base=4)
        axes.set_xticks([1, 4, 16, 64], ["1", "4", "16", "64"])
        axes.set_xlabel("times planted")
        axes.set_ylabel("exposure, bits")
        axes.legend(frameon=False, loc="center left")
        return to_svg(figure, "Exposure of planted secrets by how often they were planted")


# 18. Post-training


def preference_loss() -> str:
    """The loss of a pair of answers by its margin, and its pull, by the task's own loss."""
    margins = torch.linspace(-40, 40, 161)
    with canvas(2.9, "preference_loss") as (figure, axes):
        for number, beta in enumerate((0.03, 0.1, 0.3)):
            task, found, pull = Prefer(beta=beta), [], []
            targets = torch.tensor(
                [[0.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
            )  # of the chosen, the rejected answer
            for margin in margins:
                nats = torch.tensor([[0.0, -float(margin)], [0.0, 0.0]], requires_grad=True)
                loss = task.loss(nats, targets, torch.tensor([0, 0]))
                loss.total.backward()
                assert nats.grad is not None
                found.append(float(loss.total.detach()))
                pull.append(float(nats.grad[0, 1]))
            colour = PLACEHOLDERS[f"cell{number}"]
            axes.plot(margins, found, color=colour, label=f"\u03b2 = {beta}")
            axes.plot(margins, np.array(pull) * 10, color=colour, linestyle="--", linewidth=1)
        axes.set_ylim(0, 4)
        axes.set_xlabel("margin, nats")
        axes.set_ylabel("loss; dashed: 10 times its pull")
        axes.legend(frameon=False)
        return to_svg(figure, "The loss of a preference by its margin")
