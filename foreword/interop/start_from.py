"""Where continued pretraining starts: a run, a checkpoint, or a Hugging Face folder."""

from __future__ import annotations

from pathlib import Path

from foreword.interop import importing
from foreword.runs.continued import StartingModel
from foreword.runs.provenance import read_state
from foreword.runs.trained_model import open_run


def open_starting_model(path: str) -> StartingModel:
    """Open a run, one of its checkpoints, or a Hugging Face folder, to continue from it.

    Raises:
        UserError: it is none of these, is broken, or has nothing to train further.
    """
    folder = Path(path)
    if importing.is_hf_folder(folder):
        imported = importing.read(folder)
        provenance = {"from": str(folder.resolve()), **importing.provenance(imported)}
        return StartingModel.of(imported, provenance=provenance, is_foreign=True)
    trained = open_run(folder, "cpu")
    trained.require_gradients()
    provenance = {"from": str(trained.folder.resolve())}
    if (imported_from := read_state(trained.run).get("imported")) is not None:
        provenance |= {"imported": imported_from}
    return StartingModel.of(trained, provenance=provenance)
