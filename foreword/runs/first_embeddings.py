"""First embeddings: word vectors of the text that a run trains on, in place of random numbers."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from foreword import atomic
from foreword.data.prepared_text import PreparedText
from foreword.errors import UserError
from foreword.nn.embedding import Embedding
from foreword.nn.init import embedding_std
from foreword.nn.model import Model, neural
from foreword.nn.sharded import own_part, own_rows
from foreword.runs.continued import START
from foreword.runs.provenance import read_state, write_state
from foreword.runs.recipe import Recipe
from foreword.runs.stages import Stage
from foreword.train import tensor_files
from foreword.train.budget import Progress
from foreword.types import Vocab
from foreword.vectors.cooccurrence import learn_vectors

GROUP = "word_vectors"  # in a run folder: the file of them, and their entry in run.json
FILE = tensor_files.name_of(GROUP)


def learn(
    run: Path, recipe: Recipe, prepared: PreparedText, vocab: Vocab, model: Model, stage: Stage
) -> None:
    """Learn word vectors for a run that asks for them, and save them in its folder.

    Nothing is learned for a run that starts from trained weights, nor twice, unless the file is
    damaged.

    Args:
        run: the run folder.
        recipe: its recipe.
        prepared: its text.
        vocab: of its tokenizer.
        model: its model, of which the shapes count alone.
        stage: called with the name of the stage.

    Raises:
        UserError: the model has no embeddings of tokens, or the disk is full.
    """
    most = recipe.train.word_vectors
    if not most or (run / START).exists() or _is_learned(run):
        return
    began, width = time.monotonic(), max((t.shape[1] for t in _tables(model, vocab)), default=0)
    if not width:
        raise UserError(
            "train.word_vectors: the model has no table of embeddings of tokens; set it to 0"
        )
    stage("counting neighbours, for the first embeddings")
    prepared.train.require_whole()
    learned = learn_vectors(
        prepared.train.tokens, ~vocab.is_special, width, most, recipe.train.seed
    )
    noted: dict[str, Any] = {}
    if learned is not None:
        with atomic.user_errors(run):
            part = atomic.part_of(run / FILE)
            entry = tensor_files.write(part, {GROUP: torch.from_numpy(learned.vectors)})
            part.replace(run / FILE)
        seconds = round(time.monotonic() - began, 3)
        noted = {"tokens": learned.tokens, "flops": learned.flops, "seconds": seconds, **entry}
    write_state(run, {**read_state(run), GROUP: noted})


def load(run: Path, model: Model, vocab: Vocab) -> Progress:
    """Put the word vectors of a run into the embeddings of its model, if it has any.

    A vector gets the length that a random one has on average. A table that is narrower than the
    vectors gets their first columns, which tell most.

    Args:
        run: the run folder.
        model: with its first weights.
        vocab: of its tokenizer.

    Returns:
        The part of the budget that learning them has used.
    """
    noted = read_state(run).get(GROUP)
    if not noted:
        return Progress()
    std = embedding_std(neural(model.backbone).settings)
    with tensor_files.opened(run, GROUP) as tensors, torch.no_grad():
        for table in _tables(model, vocab):
            vectors = tensors[GROUP][own_rows(table)][:, : table.shape[1]]
            is_known = vectors.any(1)
            lengths = vectors.norm(dim=1, keepdim=True).clamp(min=torch.finfo().tiny)
            vectors = vectors / lengths * (std * math.sqrt(table.shape[1]))
            part = own_part(table)
            part[is_known.to(part.device)] = vectors[is_known].to(part)
    return Progress(flops=noted["flops"], seconds=noted["seconds"])


def notes(run: Path) -> list[str]:
    """Return what to say about the word vectors that a run began with."""
    noted = read_state(run).get(GROUP)
    if noted is None:
        return []
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


def _tables(model: Model, vocab: Vocab) -> Iterator[Tensor]:
    """Yield the embeddings of tokens in the model, (vocab, width) each, each once."""
    seen: set[int] = set()
    for module in model.modules():
        if isinstance(module, Embedding) and isinstance(module.token, nn.Embedding):
            table = module.token.weight
            if len(table) == vocab.size and id(table) not in seen:
                seen.add(id(table))
                yield table
