"""`foreword import`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from foreword.display.results import Facts, Output
from foreword.verbs._contract import ARGUMENT, PathName, Verb


@dataclass(frozen=True)
class Import(Verb[Output]):
    """Import a model made elsewhere as a run folder.

        foreword.import_("bert-base-uncased/", "runs/bert")

    No code in it is run and nothing is skipped: an unknown setting or tensor is refused by name.
    hf ends with a check of the logits if transformers is installed.

    Attributes:
        model: folder or file of a model; with --download, its hub name.
        out: run folder to create.
        format: what to read: hf (Hugging Face), arpa (n-grams) or word2vec (word vectors).
        download: with hf: download the model from the hub.
    """

    model: Annotated[PathName, ARGUMENT]
    out: PathName
    format: str = "hf"
    download: bool = False

    def __call__(self) -> Output:
        from foreword.interop.formats import _contract as formats
        from foreword.runs.run import require_free, starting

        importer = formats.open_format(self.format, download=self.download)
        out = Path(self.out)
        require_free(out)
        with starting(out):
            imported = importer.read(str(self.model), out)
        content = {**imported.facts, "notes": list(imported.notes)}
        return Output([*imported.notes, Facts(imported.facts)], content)
