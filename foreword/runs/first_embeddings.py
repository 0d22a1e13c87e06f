"""First embeddings: word vectors of the text that a run trains on, in place of random numbers."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import torch

from foreword import atomic
from foreword.data.prepared_text import PreparedText
from foreword.errors import UserError
from foreword.nn.embedding import token_tables
from foreword.nn.init import embedding_std
from foreword.nn.model import neural
from foreword.nn.sharded import own_part, own_rows
from foreword.runs.continued import START
from foreword.runs.provenance import read_state, write_state
from foreword.runs.recipe import Recipe
from foreword.runs.setup import TrainingSetup
from foreword.runs.stages import Stage
from foreword.train import tensor_files
from foreword.train.budget import Budget, Progress
from foreword.vectors.cooccurrence import LEAST_WORDS, flops_of, learn_vectors

GROUP = "word_vectors"  # in a run folder: the file of them, and their entry in run.json
FILE = tensor_files.name_of(GROUP)


def learn(run: Path, setup: TrainingSetup, prepared: PreparedText, stage: Stage) -> None:
    """Learn word vectors for a run that asks for them, and save them in its folder.

    The sources of a mixture have the shares that they have in training. Nothing is learned for a
    run that starts from trained weights, nor twice, unless the file is damaged.

    Args:
        run: the run folder.
        setup: of its training.
        prepared: its text.
        stage: called with the name of the stage.

    Raises:
        UserError: the disk is full, or the text has been cut short.
    """
    train = setup.recipe.train
    if not train.word_vectors or (run / START).exists() or _is_learned(run):
        return
    tables = token_tables(setup.model, setup.vocab.size)
    began, width = time.monotonic(), max(table.shape[1] for table in tables)
    stage("counting neighbours, for the first embeddings")
    prepared.train.require_whole()
    number = min(train.word_vectors, len(prepared.train.tokens))
    texts = [(prepared.train.tokens, number)]
    if setup.sources:
        texts = [
            (prepared.sources[source.name].train.tokens, round(source.share * number))
            for source in setup.sources
        ]
    learned = learn_vectors(texts, ~setup.vocab.is_special, width, train.seed)
    noted: dict[str, Any] = {}
    if learned is not None:
        with atomic.user_errors(run / FILE):
            part = atomic.part_of(run / FILE)
            entry = tensor_files.write(part, {GROUP: torch.from_numpy(learned.vectors)})
            part.replace(run / FILE)
        seconds = round(time.monotonic() - began, 3)
        noted = {"tokens": learned.tokens, "flops": learned.flops, "seconds": seconds, **entry}
    write_state(run, {**read_state(run), GROUP: noted})


def most_flops(setup: TrainingSetup) -> float:
    """Return the most operations that learning the word vectors of a run takes, 0 without any."""
    if not setup.recipe.train.word_vectors:
        return 0.0
    width = max(table.shape[1] for table in token_tables(setup.model, setup.vocab.size))
    words = int((~setup.vocab.is_special).sum())
    return flops_of(words, width) if words >= LEAST_WORDS * width else 0.0


def load(run: Path, setup: TrainingSetup) -> Progress:
    """Put the word vectors of a run into the embeddings of its model, if it has any.

    A vector gets the length that a random one has on average. A table that is narrower than the
    vectors gets their first columns, which tell most.

    Args:
        run: the run folder.
        setup: of its training, with the model's first weights.

    Returns:
        The part of the budget that learning them has used.

    Raises:
        UserError: that is all of it.
    """
    noted = read_state(run).get(GROUP)
    if not noted:
        return Progress()
    spent = Progress(flops=noted["flops"], seconds=noted["seconds"])
    budget = Budget.of(setup.recipe.train)
    if budget.progress(spent) >= 1:
        raise UserError(
            f"train.word_vectors: learning them took {spent.seconds:.1f} s and {spent.flops:.2g} "
            f"FLOPs, all of the budget of {budget.describe()}; give more, or set it to 0"
        )
    std = embedding_std(neural(setup.model.backbone).settings)
    with tensor_files.opened(run, GROUP) as tensors, torch.no_grad():
        for table in token_tables(setup.model, setup.vocab.size):
            vectors = tensors[GROUP][own_rows(table)][:, : table.shape[1]]
            is_known = vectors.any(1)
            lengths = vectors.norm(dim=1, keepdim=True).clamp(min=torch.finfo().tiny)
            vectors = vectors / lengths * (std * math.sqrt(table.shape[1]))
            part = own_part(table)
            part[is_known.to(part.device)] = vectors[is_known].to(part)
    return spent


def notes(run: Path, recipe: Recipe) -> list[str]:
    """Return what to say about the word vectors that a run began with, or asked for in vain."""
    noted = read_state(run).get(GROUP)
    if noted is None:
        return ["no word vectors: it starts from trained weights"] * bool(recipe.train.word_vectors)
    if not noted:
        return ["no word vectors: too few different words in the text; the embeddings are random"]
    return [
        f"first embeddings: word vectors from {noted['tokens']:,} tokens of the text, in "
        f"{noted['seconds']:.1f} s"
    ]


def _is_learned(run: Path) -> bool:
    """Return whether the run has learned its word vectors, or found none to learn."""
    noted = read_state(run).get(GROUP)
    if not noted:
        return noted is not None
    return (run / FILE).is_file() and atomic.checksum(run / FILE) == noted["blake2b"]
