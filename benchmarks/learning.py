"""What encoder, decoder and encoder-decoder learn from the same tokens in the same time.

    python benchmarks/learning.py TEXT... --hours 0.2 --work FOLDER --out docs/results

One tokenizer, one set of shards; an encoder, a decoder and an encoder-decoder of mini size, each
for `--hours` on this machine, by the command line. The held-out loss of each is plotted against
time, next to the entropy of the same held-out tokens under unigram and bigram counts of the
training text. The three tasks differ, so each curve is to be read against these two lines, not
against the others. After a kill, the same command continues.
"""

from __future__ import annotations

import argparse
import csv
import subprocess
import sys
from pathlib import Path
from typing import Any

RECIPES = {
    "bert_mini_one_objective": "encoder (masked)",
    "gpt2_mini": "decoder (causal)",
    "t5_mini": "encoder-decoder (span corruption)",
}
SETTINGS = ["train.evaluations=24", "train.heldout_rows=256"]


def foreword(*words: str) -> None:
    """Run a command of Foreword, which must succeed."""
    print("foreword", *words, flush=True)
    subprocess.run([sys.executable, "-m", "foreword", *words], check=True)


def records(run: Path) -> list[dict[str, Any]]:
    """Return the held-out records of a run."""
    from foreword.train import log

    return [record for record in log.read(run) if record["kind"] == "heldout"]


def plot(runs: dict[str, list[dict[str, Any]]], lines: dict[str, float], out: Path) -> None:
    """Plot the curves of the runs and the lines of the counts."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7.5, 4.6), layout="constrained")
    for name, curve in runs.items():
        minutes = [r["seconds"] / 60 for r in curve]
        axes.plot(minutes, [r["loss"] for r in curve], marker=".", label=RECIPES[name])
    for style, (name, value) in zip(("--", ":"), lines.items(), strict=True):
        axes.axhline(value, color="0.4", linestyle=style, label=f"{name} counts")
    axes.set_xlabel("minutes of training")
    axes.set_ylabel("held-out loss, nats per predicted token")
    axes.set_title("The same tokens, the same time, three tasks", loc="left")
    axes.grid(alpha=0.25)
    axes.legend(frameon=False)
    figure.savefig(out, dpi=150)


def main() -> None:
    """Run and plot."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("text", nargs="+")
    parser.add_argument("--hours", type=float, default=0.2)
    parser.add_argument("--vocab", type=int, default=16_384)
    parser.add_argument("--work", type=Path, required=True, help="a folder for shards and runs")
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    arguments = parser.parse_args()
    # Prepare the text once, then train or resume each run.
    shards = arguments.work / "shards"
    vocab = str(arguments.vocab)
    foreword("prepare", *arguments.text, "--out", str(shards), "--kind", "bpe", "--vocab", vocab)
    runs = {}
    for name in RECIPES:
        run = arguments.work / name
        if (run / "recipe.toml").exists():
            foreword("resume", str(run))
        else:
            settings = [word for setting in SETTINGS for word in ("--set", setting)]
            words = ["--data", str(shards), "--out", str(run), "--hours", str(arguments.hours)]
            foreword("pretrain", name, *words, *settings)
        runs[name] = records(run)

    from foreword.data.prepared_text import PreparedText
    from foreword.evaluation import heldout
    from foreword.evaluation.loaded import load

    # The loss of counts on the tokens that a causal model predicts, then plot and table.
    causal = load(arguments.work / "gpt2_mini").trained
    losses = heldout.on_prepared(causal, PreparedText.load(shards))
    lines = {one.what.split()[0]: one.loss for one in losses if one.what.endswith(" counts")}
    arguments.out.mkdir(parents=True, exist_ok=True)
    plot(runs, lines, arguments.out / "learning.png")
    with (arguments.out / "learning.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["recipe", "minutes", "step", "tokens", "loss", "bits_per_byte"])
        for name, rows in runs.items():
            for r in rows:
                minutes = round(r["seconds"] / 60, 2)
                bits = "" if r["bits_per_byte"] is None else round(r["bits_per_byte"], 4)
                writer.writerow([name, minutes, r["step"], r["tokens"], round(r["loss"], 4), bits])
        for name, value in lines.items():
            writer.writerow([f"{name} counts", "", "", "", round(value, 4), ""])
    print({name: rows[-1]["loss"] for name, rows in runs.items()}, lines)


if __name__ == "__main__":
    main()
