"""Where continued pretraining starts: a run, a checkpoint, or a Hugging Face folder."""

from __future__ import annotations

from pathlib import Path

from foreword.interop import importing
from foreword.runs.continued import Foundation
from foreword.runs.provenance import read_state
from foreword.runs.trained_model import open_run


def open_foundation(path: str) -> Foundation:
    """A run, one of its checkpoints, or a Hugging Face folder.

    Raises:
        UserError: it is none of these, is broken, or has nothing to train further.
    """
    folder = Path(path)
    if importing.is_foreign(folder):
        found = importing.read(folder)
        said = {"from": str(folder.resolve()), **importing.provenance(found)}
        return Foundation(
            folder,
            found.recipe,
            found.tokenizer,
            found.model,
            said,
            found.notes,
            is_foreign=True,
        )
    opened = open_run(folder, "cpu")
    opened.require_gradients()
    said = {"from": str(opened.checkpoint.resolve())}
    if (made := read_state(opened.run).get("imported")) is not None:
        said |= {"imported": made}
    return Foundation(folder, opened.recipe, opened.tokenizer, opened.model, said, opened.notes)
