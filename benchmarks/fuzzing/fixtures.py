"""What all cases may read: texts, tables, a tokenizer, shards, and small runs of several families.

Made once, the same for every seed.
"""

from __future__ import annotations

import random
from pathlib import Path

FAMILIES = ("bert", "gpt2", "t5", "elmo", "linformer", "transformer_xl", "ngram", "word2vec")
SMALL = ("prepare.heldout=0.1", "tokenizer.vocab=400")
QUICK = ("train.batch=2", "train.evaluations=1", "train.heldout_rows=2", "train.device=cpu")
OFFLINE = ("ngram", "word2vec")
ONCE = ("--seeds", "1", "--epochs", "1")
SUITE = """description = "Two tasks"
rate_factors = [1.0]
[[tasks]]
name = "One"
task = { kind = "classify" }
metrics = ["accuracy"]
labels = ["a", "b"]
layouts = [{ train = ["train"], dev = [{ files = ["dev"] }] }]
[[tasks]]
name = "Two"
task = { kind = "classify", pooling = "mean" }
metrics = ["f1"]
labels = ["a", "b"]
layouts = [{ train = ["train"], dev = [{ files = ["dev"] }] }]
"""
GRID = """description = "Two cells"
data = ["text.txt"]
budget = { unit = "steps", amount = 2 }
seeds = 1
[set]
train = { batch = 2, evaluations = 1, heldout_rows = 2, checkpoints = 1, device = "cpu" }
prepare = { heldout = 0.1 }
tokenizer = { vocab = 400 }
[[cells]]
recipe = "bert_tiny"
[[cells]]
recipe = "gpt2_tiny"
[[tasks]]
name = "Labels"
train = "train.tsv"
dev = ["dev.tsv"]
tune = { seeds = 1, epochs = 1 }
"""


def sentences(rng: random.Random, count: int) -> list[str]:
    """Sentences of made-up words, some of them frequent."""
    syllables = [c + v for c in "bdfgklmnprstvz" for v in "aeiou"]
    words = ["".join(rng.choices(syllables, k=rng.randint(1, 4))) for _ in range(200)]
    weights = [1 / (n + 5) for n in range(len(words))]
    made = (rng.choices(words, weights, k=rng.randint(4, 12)) for _ in range(count))
    return [" ".join(sentence).capitalize() + "." for sentence in made]


def write_texts(folder: Path) -> None:
    """Writes the texts and tables."""
    rng = random.Random(1)
    made = sentences(rng, 600)
    paragraphs = [" ".join(made[n : n + 6]) for n in range(0, len(made), 6)]
    (folder / "text.txt").write_text("\n\n".join(paragraphs) + "\n", encoding="utf-8")
    (folder / "other.txt").write_text("\n".join(made[:40]) + "\n", encoding="utf-8")
    (folder / "line.txt").write_text(made[0] + "\n", encoding="utf-8")
    (folder / "suite.toml").write_text(SUITE, encoding="utf-8")
    (folder / "grid.toml").write_text(GRID, encoding="utf-8")
    (folder / "clean.toml").write_text('[clean]\nsteps = ["exact_duplicates"]\n', encoding="utf-8")
    (folder / "pairs").mkdir()
    for side, step in (("en", 1), ("de", -1)):
        lines = [" ".join(one.split()[::step]) for one in made[:200]]
        (folder / "pairs" / f"train.{side}").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for name in ("train", "dev"):
        rows = [f"{rng.choice(made)}\t{'ab'[n % 2]}" for n in range(12)]
        table = "\n".join(["text\tlabel", *rows]) + "\n"
        (folder / f"{name}.tsv").write_text(table, encoding="utf-8")


def commands(folder: Path) -> list[list[str]]:
    """The command lines that make the rest, each after those before it."""
    text, paragraphs = str(folder / "text.txt"), ["--documents", "paragraph"]
    small = [word for setting in SMALL for word in ("--set", setting)]
    quick = [word for setting in QUICK for word in ("--set", setting)]
    made = []
    for family in FAMILIES:
        words = ["pretrain", f"{family}_tiny", "--data", text, *paragraphs, *small]
        words += ["--out", str(folder / family)]
        made.append(words if family in OFFLINE else [*words, *quick, "--steps", "2"])
    out, shards = str(folder / "translator"), str(folder / "shards")
    pairs = ["--data", str(folder / "pairs" / "train.en"), "--steps", "2"]
    made.append(["pretrain", "translator_tiny", *pairs, *small, *quick, "--out", out])
    tokens = ["--vocab", "400", "--heldout", "0.1"]
    made.append(["prepare", text, *paragraphs, *tokens, "--out", shards])
    made.append(["tokenizer", "train", text, "--vocab", "400", "--out", str(folder / "tokenizer")])
    for name, run, form in (
        ("hf", "bert", "hf"),
        ("vectors.txt", "word2vec", "word2vec"),
        ("counts.arpa", "ngram", "arpa"),
    ):
        target = str(folder / name)
        made.append(["export", str(folder / run), "--format", form, "--out", target])
    labelled = ["--train", str(folder / "train.tsv"), "--dev", str(folder / "dev.tsv")]
    tuned = ["tune", str(folder / "bert"), *labelled, *ONCE, "--name"]
    made += [[*tuned, "fixture"], [*tuned, "other", "--strategy", "frozen"]]
    return made


def more_commands(folder: Path) -> list[list[str]]:
    """The command lines that make what only cases of faults read."""
    small = [word for setting in (*SMALL, *QUICK) for word in ("--set", setting)]
    shards = ["pretrain", "gpt2_tiny", "--data", str(folder / "text.txt"), *small, "--steps", "4"]
    shards += ["--set", "parallel.kind=fsdp", "--set", "train.checkpoints=2", "--set"]
    exported = ["export", str(folder / "bert" / "tuned" / "fixture"), "--format", "hf", "--out"]
    return [
        [*shards, "train.kept_checkpoints=2", "--processes", "2", "--out", str(folder / "sharded")],
        [*exported, str(folder / "hf-tuned")],
        suite(folder, folder / "bert", folder / "suite"),
        clean(folder, folder / "cleaned"),
        compare(folder, folder / "comparison"),
    ]


def suite(folder: Path, run: Path, out: Path, name: str = "suite") -> list[str]:
    """The command line that tunes a run on a suite of two tasks."""
    words = ["tune-suite", str(run), str(folder / "suite.toml"), "--data", str(folder)]
    return [*words, *ONCE, "--name", name, "--out", str(out)]


def clean(folder: Path, out: Path) -> list[str]:
    """The command line that cleans a text."""
    words = ["clean", str(folder / "text.txt"), "--documents", "paragraph", "--workers", "1"]
    return [*words, "--recipe", str(folder / "clean.toml"), "--out", str(out)]


def compare(folder: Path, out: Path) -> list[str]:
    """The command line that compares two recipes on a text and a task."""
    return ["compare", str(folder / "grid.toml"), "--out", str(out)]
