"""`foreword.load`: any trained model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foreword.evaluation import loaded
from foreword.settings import config
from foreword.verbs import _arguments
from foreword.verbs._arguments import PathName

if TYPE_CHECKING:
    from foreword.evaluation.loaded import LoadedModel
    from foreword.tuning.tuned_model import Predictor, TunedWriter


def load(
    path: PathName, device: str = "auto", precision: str = "fp32"
) -> LoadedModel | Predictor | TunedWriter:
    """Open a trained model: a run or one of its checkpoints, or a folder that `tune` wrote.

        foreword.load("runs/books").fill("The old man went to [MASK].").blanks[0]
        foreword.load("runs/gpt").generate("In the beginning", temperature=0.8, tokens=40)
        foreword.load("runs/books/tuned/reviews").predict(["a fine book"])
        foreword.load("runs/books/tuned/same").predict(["a fine book"], ["a second text of each"])

    `predict` returns labels and their probabilities; of a model tuned to answer in text, the texts.
    Numbers come from `outputs`. `foreword.predict` reads and writes files.

    Args:
        path: the folder.
        device: auto, cpu, cuda or mps.
        precision: fp32, bf16 or auto.

    Raises:
        UserError: no such folder, no whole checkpoint, or no such device.
    """
    device = config.convert(str, device, "--device")
    precision = config.convert(str, precision, "--precision")
    folder = _arguments.path(path, "RUN")
    from foreword.tuning.tuned_folder import is_tuned

    if is_tuned(folder):
        from foreword.tuning.open_tuned import open_tuned

        return open_tuned(folder, device, precision)
    return loaded.load(folder, device, precision)
