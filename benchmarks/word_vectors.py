"""Word vectors: ours next to gensim's with equal settings, in words per second and in quality.

    python benchmarks/word_vectors.py TEXT... --megabytes 20 --epochs 5 --threads 2 \\
        --analogies questions-words.txt --similarity wordsim353.txt [--seeds 1 2 3]

Both learn from the same token shards, with the same vocabulary, one after the other, and answer the
same questions. A ratio above 1 is in our favour. CPU time is shown beside wall time: if other work
shares the machine, it is the fairer of the two. Words are those of the text, subsampled ones
included. A recipe that learns through gensim, as word2vec_cbow does, is gensim twice; the ratio
then measures our code around it.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import astuple, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch

from foreword.data.holdout import SplitFiles
from foreword.data.read_documents import read_documents
from foreword.data.shards import Shards
from foreword.data.write_shards import PrepareSettings, prepare
from foreword.models.word_vectors import WordVectorsBackbone
from foreword.nn.model import Model
from foreword.nn.offline_training import OfflineInputs
from foreword.probes._contract import ProbedModel
from foreword.probes.analogies import Analogies
from foreword.probes.similarity import Similarity
from foreword.runs.offline import offline_inputs
from foreword.runs.recipe import Recipe, load_recipe
from foreword.runs.trained_model import TrainedModel
from foreword.text.tokenizer import Tokenizer
from foreword.vectors.corpus import WordCorpus
from foreword.vectors.through_gensim import LONGEST

RECIPES = ("word2vec_skip_gram", "word2vec_cbow")


@dataclass(frozen=True)
class LearningResult:
    """The time of learning, and the quality of the vectors."""

    seconds: float
    processor: float
    spearman: float | None
    semantic: float | None
    syntactic: float | None


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("texts", nargs="+", help="files or folders")
    parser.add_argument("--megabytes", type=float, default=20.0, help="megabytes of text to read")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--recipes", nargs="+", default=RECIPES)
    parser.add_argument("--seeds", nargs="+", type=int, default=[1], help="means over them follow")
    parser.add_argument("--analogies", default="", help="like questions-words.txt")
    parser.add_argument("--similarity", default="", help="like wordsim353.txt")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    with tempfile.TemporaryDirectory() as folder:
        texts = Path(folder) / "text.jsonl"
        _cut(arguments.texts, texts, arguments.megabytes * 1e6)
        documents = (document.text for document in read_documents([texts]))
        tokenizer = load_recipe(arguments.recipes[0]).tokenizer.train(documents)
        settings = PrepareSettings(heldout=0.0)
        shards = prepare(
            SplitFiles.find([texts]), tokenizer, Path(folder) / "shards", settings
        ).train
        heads = ("seconds", "processor", "spearman", "semantic", "syntactic")
        print(" " * 34 + "".join(f"{head:>11}" for head in heads))
        for name in arguments.recipes:
            compare(name, tokenizer, shards, arguments)


def compare(name: str, tokenizer: Tokenizer, shards: Shards, arguments: argparse.Namespace) -> None:
    """Measure both on one recipe, with each seed."""
    results: dict[str, list[LearningResult]] = {"gensim": [], "ours": []}
    read = 0
    for seed in arguments.seeds:
        recipe = load_recipe(name, [f"train.epochs={arguments.epochs}", f"train.seed={seed}"])
        for who, learn in (("gensim", learn_with_gensim), ("ours", learn_with_ours)):
            model = recipe.build(tokenizer.vocab)
            backbone = model.backbone
            assert isinstance(backbone, WordVectorsBackbone)
            with tempfile.TemporaryDirectory() as folder:
                took = learn(
                    backbone, offline_inputs(recipe, shards, tokenizer.vocab, Path(folder))
                )
            read = int(backbone.counts.sum()) * arguments.epochs
            results[who].append(evaluate(took, model, recipe, tokenizer, arguments))
            _print(f"{name} {who}", results[who][-1])
    means = {who: _mean(runs) for who, runs in results.items()}
    if len(arguments.seeds) > 1:
        for who, mean in means.items():
            _print(f"{name} {who}, mean", mean)
    for what in ("seconds", "processor"):
        theirs, ours = (getattr(means[who], what) for who in ("gensim", "ours"))
        rates = f"{read / ours:,.0f} words/s to gensim's {read / theirs:,.0f}"
        print(f"  by {what}: {rates}: ratio {theirs / ours:.2f}", flush=True)


def _mean(runs: list[LearningResult]) -> LearningResult:
    """Return the mean of each number; None if a run lacks it."""
    columns = zip(*(astuple(run) for run in runs), strict=True)
    means: list[Any] = [None if None in column else fmean(column) for column in columns]
    return LearningResult(*means)


def learn_with_ours(backbone: WordVectorsBackbone, reading: OfflineInputs) -> tuple[float, float]:
    """Return the seconds of wall time and CPU time of ours."""
    return _timed(lambda: backbone.fit(reading))


def learn_with_gensim(backbone: WordVectorsBackbone, reading: OfflineInputs) -> tuple[float, float]:
    """Return those of gensim, from lists of words in memory; the backbone gets its vectors."""
    from gensim.models import Word2Vec

    shards, training = reading.shards, backbone.training_settings(reading)
    words = WordCorpus.of(shards.tokens, shards.document_starts, backbone.is_word)
    names = np.array([str(n) for n in range(len(words.counts))], dtype=object)
    texts = [
        names[text[at : at + LONGEST]].tolist()
        for text in words.texts()
        for at in range(0, len(text), LONGEST)
    ]
    model = Word2Vec(
        vector_size=backbone.kind.d_model,
        alpha=training.lr(0.0),
        window=training.window,
        sample=training.subsample,
        seed=training.seed,
        workers=training.threads,
        sg=int(training.architecture.is_skip_gram),
        negative=backbone.kind.output.negatives,
        min_count=1,
        epochs=training.epochs,
    )
    model.build_vocab(texts)
    total = words.total  # the learning rate falls by words, as ours does, not by texts
    took = _timed(lambda: model.train(texts, total_words=total, epochs=training.epochs))
    ids = np.array([int(name) for name in model.wv.index_to_key])
    backbone.counts = words.counts
    with torch.no_grad():
        backbone.embedding.token.weight[torch.from_numpy(ids)] = torch.from_numpy(model.wv.vectors)
    return took


def _timed(work: Callable[[], object]) -> tuple[float, float]:
    began, used = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - began, time.process_time() - used


def evaluate(
    took: tuple[float, float],
    model: Model,
    recipe: Recipe,
    tokenizer: Tokenizer,
    arguments: argparse.Namespace,
) -> LearningResult:
    """Return the quality of the vectors, with the times of learning."""
    prompted = TrainedModel(model.eval(), recipe, tokenizer, torch.device("cpu"))
    models = [ProbedModel("it", prompted)]
    near = Similarity(arguments.similarity).measure(models).rows[0]["spearman"]
    rows = Analogies(arguments.analogies).measure(models).rows
    accuracy = {row["section"]: row["accuracy"] for row in rows}
    return LearningResult(*took, near, accuracy["semantic"], accuracy["syntactic"])


def _print(name: str, result: LearningResult) -> None:
    shares = (result.spearman, result.semantic, result.syntactic)
    shown = ["-" if value is None else f"{value:.4f}" for value in shares]
    cells = [f"{result.seconds:.1f}", f"{result.processor:.1f}", *shown]
    print(f"{name:34}" + "".join(f"{cell:>11}" for cell in cells), flush=True)


def _cut(texts: list[str], path: Path, most: float) -> None:
    """Write the first documents, as many as fill `most` bytes."""
    size = 0
    with path.open("w", encoding="utf-8") as file:
        for document in read_documents(texts):
            file.write(json.dumps({"text": document.text}) + "\n")
            size += len(document.text.encode())
            if size > most:
                return


if __name__ == "__main__":
    main()
