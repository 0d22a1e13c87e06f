"""A model that was tuned on another task, as the start of a new one."""

from __future__ import annotations

from pathlib import Path

from foreword.nn.init import initialise
from foreword.runs.trained_model import TrainedModel, is_run, open_run
from foreword.tuning.tuned import is_tuned
from foreword.tuning.tuned_model import load_tuned


def open_start(path: Path, device: str = "auto") -> TrainedModel:
    """Open what fine-tuning starts from: a run, one of its checkpoints, or a tuned model.

    A tuned model has its backbone, in the recipe of pretraining, and its head besides; the heads of
    pretraining it has no more, and they are random.

    Args:
        path: the folder.
        device: auto, cpu, cuda or mps.

    Raises:
        UserError: there is no such folder, or it is damaged.
    """
    if not is_tuned(path) or is_run(path):  # one that answers in text is a run itself
        return open_run(path, device)
    tuned = load_tuned(path, device)
    model = tuned.recipe.build(tuned.tokenizer.vocab)
    initialise(model, tuned.recipe.train.seed)
    model.backbone.load_state_dict(tuned.network.backbone.state_dict())
    return TrainedModel(
        model=model.to(tuned.device).eval(),
        recipe=tuned.recipe,
        tokenizer=tuned.tokenizer,
        device=tuned.device,
        dtype=tuned.dtype,
        source=path,
        tuned_head=tuned.network.head,
    )
