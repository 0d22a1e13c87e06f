"""First embeddings: word vectors (`train/embedding_init/`) in place of random numbers."""

from __future__ import annotations

import math
import shutil
import time
from pathlib import Path

import torch

from foreword.data.fingerprint import digest
from foreword.data.prepared_text import PreparedText
from foreword.disk import atomic
from foreword.errors import UserError
from foreword.nn.embedding import token_tables
from foreword.nn.init import embedding_std, shapes_only
from foreword.nn.model import neural
from foreword.nn.sharded import local_part, local_rows
from foreword.runs.continued import START
from foreword.runs.dry_run import shallow, widths_of
from foreword.runs.recipe import Recipe
from foreword.runs.run_folder import Run
from foreword.runs.setup import TrainingSetup
from foreword.runs.stages import Stage
from foreword.train import tensor_files
from foreword.train.budget import Budget, Progress
from foreword.types import Vocab

GROUP = "word_vectors"  # in a run folder: the file of them, and their entry in run.json
FILE = tensor_files.name_of(GROUP)
SHARED = "shared_embeddings"  # in run.json: where several runs keep what they count once


def learn(run: Run, setup: TrainingSetup, prepared: PreparedText, stage: Stage) -> None:
    """Make the word vectors that a run's embeddings begin as, and save them in its folder.

    Nothing is made for a run that starts from trained weights, nor twice, unless the file is
    damaged. Runs that share theirs (`SHARED`) make them once, and no budget of theirs pays for it.

    Args:
        run: the run.
        setup: the set-up of its training.
        prepared: its text.
        stage: called with the name of the stage.

    Raises:
        UserError: they would take all of the budget, the disk is full, the text has been cut
            short, or a file of vectors cannot be read.
    """
    init, shared = setup.recipe.train.embedding_init, run.noted.get(SHARED)
    file = run.folder / FILE
    if init.is_random or (run.folder / START).exists() or _is_learned(run):
        return
    if shared is None:
        require_budget(setup.recipe, setup.vocab)
    began, width = time.monotonic(), max(widths_of(setup.model, setup.vocab))
    stage(init.stage)
    prepared.train.require_complete()
    text = [(prepared.train.tokens, 1.0)]
    if setup.sources:
        text = [(prepared.sources[s.name].train.tokens, s.share) for s in setup.sources]
    noted, seed = init.source(text), setup.recipe.train.seed
    # Those of the same source, width and seed may be known.
    shares = [share for _, share in text]
    key = f"{GROUP}-{digest([prepared.fingerprint, shares, noted, width, seed])}"
    part, known = atomic.partial_folder(file), shared and _shared(Path(shared), key)
    with atomic.user_errors(file):
        if known:
            shutil.copyfile(known, part)
            noted["blake2b"] = atomic.checksum(part)
        else:
            learned = init.vectors(text, setup.tokenizer, width, seed)
            if learned is None:
                run.note(**{GROUP: {}})
                return
            noted |= tensor_files.write(part, {GROUP: torch.from_numpy(learned.vectors)})
            noted["flops"] = learned.flops
        part.replace(file)
        if shared and not known:
            shutil.copyfile(file, part)
            part.replace(Path(shared) / tensor_files.name_of(f"{key}-{noted['blake2b']}"))
    with tensor_files.opened(run.folder, GROUP) as tensors:
        noted["found"] = int(tensors[GROUP][:].any(1).sum())
    noted["seconds"] = round(time.monotonic() - began, 3)
    noted |= {"flops": 0.0, "seconds": 0.0} if shared else {}
    run.note(**{GROUP: noted})


def most_flops(recipe: Recipe, vocab: Vocab) -> float:
    """Return the most operations that the first embeddings of a run take."""
    init = recipe.train.embedding_init
    if init.is_random:
        return 0.0
    with shapes_only():
        widths = widths_of(shallow(recipe)[0].build(vocab), vocab)
    return init.most_flops(int((~vocab.is_special).sum()), max(widths))


def most_of_budget(recipe: Recipe, vocab: Vocab) -> float:
    """Return the largest share of a budget in FLOPs that they take; 0 of any other budget."""
    return Budget.of(recipe.train).progress(Progress(flops=most_flops(recipe, vocab)))


def require_budget(recipe: Recipe, vocab: Vocab) -> None:
    """Check that word vectors leave something of a budget in FLOPs to train with.

    Raises:
        UserError: they may take all of it.
    """
    if most_of_budget(recipe, vocab) >= 1:
        raise _no_budget(recipe, f"take up to {most_flops(recipe, vocab):.2g} FLOPs")


def _no_budget(recipe: Recipe, cost: str) -> UserError:
    return UserError(
        f"train.embedding_init: the first embeddings {cost}, all of the budget of "
        f"{Budget.of(recipe.train).describe()}; give more, or set it to random"
    )


def load(run: Run, setup: TrainingSetup) -> Progress:
    """Put the word vectors of a run into the embeddings of its model, if it has any.

    A vector gets the length that a random one has on average. A table that is narrower than the
    vectors gets their first columns, which tell most.

    Args:
        run: the run.
        setup: the set-up of its training, with the model's first weights.

    Returns:
        The part of the budget that learning them has used.

    Raises:
        UserError: that is all of it.
    """
    noted = run.noted.get(GROUP)
    if not noted:
        return Progress()
    spent = Progress(flops=noted["flops"], seconds=noted["seconds"])
    if Budget.of(setup.recipe.train).progress(spent) >= 1:
        raise _no_budget(setup.recipe, f"took {spent.seconds:.1f} s")
    std = embedding_std(neural(setup.model.backbone).settings)
    with tensor_files.opened(run.folder, GROUP) as tensors, torch.no_grad():
        for table in token_tables(setup.model, setup.vocab.size):
            vectors = tensors[GROUP][local_rows(table)][:, : table.shape[1]]
            is_known = vectors.any(1)
            lengths = vectors.norm(dim=1, keepdim=True).clamp(min=torch.finfo().tiny)
            vectors = vectors / lengths * (std * math.sqrt(table.shape[1]))
            part = local_part(table)
            part[is_known.to(part.device)] = vectors[is_known].to(part)
    return spent


def notes(run: Run) -> list[str]:
    """Return what to say about the word vectors that a run began with, or asked for in vain."""
    noted, is_random = run.noted.get(GROUP), run.recipe.train.embedding_init.is_random
    if noted is None:
        return [] if is_random else ["no word vectors: it starts from trained weights"]
    if not noted:
        return ["no word vectors: too few words for them; the embeddings are random"]
    source = f"from {noted['tokens']:,} tokens of the text" if "tokens" in noted else ""
    source = source or f"of {noted['found']:,} tokens from {noted['file']}"
    return [f"first embeddings: word vectors {source}, in {noted['seconds']:.1f} s"]


def _shared(folder: Path, key: str) -> Path | None:
    """Return the whole file of vectors that another run has left; None without one."""
    files = folder.glob(tensor_files.name_of(f"{key}-*"))
    return next((file for file in files if file.stem.endswith(atomic.checksum(file))), None)


def _is_learned(run: Run) -> bool:
    """Return whether the run has learned its word vectors, or found none to learn."""
    noted, file = run.noted.get(GROUP), run.folder / FILE
    if not noted:
        return noted is not None
    return file.is_file() and atomic.checksum(file) == noted["blake2b"]
