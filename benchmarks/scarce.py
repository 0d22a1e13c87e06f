"""Held-out losses over epochs of the runs of the grid `scarce_text`, as CSV and plot.

    python benchmarks/scarce.py FOLDER/runs/* --out docs/results

Losses of masked diffusion are bounds. Of GPT-BERT the half that predicts the next token is taken.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from foreword import figures
from foreword.models.transformer import Transformer
from foreword.objectives.causal import Causal
from foreword.runs.recipe import load_recipe
from foreword.settings.kinds import name_of

NAMES = {"hybrid": "GPT-BERT, its causal half"}
TABLE, PLOT = "scarce.csv", "scarce.png"


def curve(run: Path) -> list[dict[str, Any]]:
    """Return the rows of a run, one for each evaluation on held-out text."""
    recipe = load_recipe(run / "recipe.toml")
    counts = json.loads((run / "run.json").read_text())["data"]["counts"]
    read, held = counts["train"], counts["heldout"]
    objective = name_of(recipe.objective)
    cell = NAMES.get(objective, objective)
    if isinstance(recipe.model, Transformer) and recipe.model.dropout:
        cell += ", dropout and decay"
    if isinstance(recipe.objective, Causal) and recipe.objective.masked_inputs:
        cell += ", masked inputs"
    rows = []
    for line in (run / "metrics.jsonl").read_text().splitlines():
        record = json.loads(line)
        if record["kind"] != "heldout":
            continue
        loss, bits = record["loss"], record["bits_per_byte"]
        if "causal" in record:  # each document ends in a token that is predicted too
            loss = record["causal"]
            bits = loss * (held["tokens"] + held["documents"]) / held["bytes"] / math.log(2)
        rows.append(
            {
                "text": f"{read['bytes'] / 1e6:.0f} MB",
                "cell": cell,
                "epoch": round(record["tokens"] / read["tokens"], 2),
                "tokens": record["tokens"],
                "loss": round(loss, 4),
                "bits_per_byte": "" if bits is None else round(bits, 4),
                "is_bound": record.get("is_bound", False),
            }
        )
    return rows


def plot(curves: list[list[dict[str, Any]]]) -> Figure:
    """Return a figure: bits per byte for each text, and the losses of masked models in nats."""
    figure = Figure(figsize=(11, 4.6), layout="constrained")
    texts = sorted({rows[0]["text"] for rows in curves})
    panels: Any = figure.subplots(1, len(texts) + 1, width_ratios=[*[3] * len(texts), 2.4])
    cells = list(dict.fromkeys(rows[0]["cell"] for rows in curves))
    for rows in curves:
        text, cell, is_bound = (rows[0][key] for key in ("text", "cell", "is_bound"))
        key = "bits_per_byte" if rows[0]["bits_per_byte"] else "loss"
        axes = panels[texts.index(text) if key == "bits_per_byte" else -1]
        name = text if axes is panels[-1] else cell
        colour = f"C{7 + texts.index(text)}" if axes is panels[-1] else f"C{cells.index(cell)}"
        epochs, losses = [row["epoch"] for row in rows], [row[key] for row in rows]
        best = losses.index(min(losses))
        most = "at most " if is_bound else ""
        label = f"{name}: {most}{losses[best]:.3f}, end {losses[-1]:.3f}"
        axes.plot(epochs, losses, "--" if is_bound else "-", color=colour, label=label)
        axes.plot(epochs[best], losses[best], "o", color=colour)
    for axes, title in zip(panels, [*texts, "masked, both texts"], strict=True):
        axes.set(title=title, xlabel="epochs", xscale="log")
        axes.xaxis.set_major_formatter("{x:g}")
        axes.grid(alpha=0.3)
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), frameon=False)
    panels[0].set(ylabel="bits per byte, held-out", ylim=(2.05, 3.3))
    panels[-1].set(ylabel="nats per prediction, held-out")
    return figure


def main() -> None:
    """Read the runs, write table and plot, and print the best and the last point of each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    curves = [curve(run) for run in options.runs]
    with (options.out / TABLE).open("w", newline="") as file:
        writer = csv.DictWriter(file, curves[0][0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(row for rows in curves for row in rows)
    (options.out / PLOT).write_bytes(figures.render(plot(curves), dpi=110).data)
    for rows in curves:
        best, last = min(rows, key=lambda row: row["loss"]), rows[-1]
        print(f"{last['text']:6} {last['cell']}")
        for name, row in (("best", best), ("end", last)):
            print(f"  {name:5} {row['epoch']:6} epochs {row['loss']} {row['bits_per_byte']}")


if __name__ == "__main__":
    main()
