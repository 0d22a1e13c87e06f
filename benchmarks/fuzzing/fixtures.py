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
    once = ["--seeds", "1", "--epochs", "1", "--name", "fixture"]
    made.append(["tune", str(folder / "bert"), *labelled, *once])
    return made
