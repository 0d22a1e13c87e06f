"""Model folders of Hugging Face's transformers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from foreword.errors import UserError
from foreword.interop import exporting, files, importing
from foreword.interop.formats._contract import ExchangeResult
from foreword.runs.trained_model import TrainedModel
from foreword.settings import kinds

NOT_CHECKED = "not checked against transformers, which is not installed"


@dataclass(frozen=True)
class HF:
    """A folder that AutoModel and AutoTokenizer read without our code.

    Nothing in it is run and nothing is ignored: an unknown setting or tensor is refused by name.
    Import and export end with a check of the logits if transformers is installed.

    Attributes:
        family: the family to export to (bert, gpt2, ...); by default the one that fits.
        download: whether the source of an import is the name of a model on the hub.
    """

    family: str = ""
    download: bool = False

    def write(self, trained: TrainedModel, out: Path) -> ExchangeResult:
        trained, dropped = exporting.without_boundary_head(trained)
        exported = exporting.export(trained, out, self.family)
        architecture = exported.family.architecture_of(trained.recipe)
        facts = {"folder": str(out), "architecture": architecture, **exported.differences}
        notes = dropped + exported.family.differences(trained.recipe).notes
        return ExchangeResult(facts, (*notes, *unchecked(exported.differences)))

    def read(self, source: str, run: Path) -> ExchangeResult:
        if self.family:
            raise UserError("--family is for export; an imported folder names its own family")
        folder = _download(source) if self.download else Path(source)
        if not folder.is_dir():
            raise UserError(f"{source}: no such folder; a name on the hub requires --download")
        imported = importing.read(folder)
        difference = importing.check(imported)
        tokenizer_notes = importing.reading_notes(imported)
        importing.save(imported, run)
        facts = {
            "run": str(run),
            "family": kinds.name_of(importing.family_in(folder)),
            "parameters": imported.model.count_parameters(),
            "vocabulary": imported.vocab.size,
        }
        notes = (*imported.notes, *tokenizer_notes, *unchecked(difference))
        return ExchangeResult(facts | difference, notes)


def unchecked(difference: Mapping[str, float | None]) -> tuple[str, ...]:
    """Return a note if the logits were not compared."""
    return (NOT_CHECKED,) if difference["logit_difference"] is None else ()


def _download(name: str) -> Path:
    """Download the files of a model on the hub and return their folder."""
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise UserError("--download requires: pip install 'foreword[hf]'") from error
    patterns = [f"*{suffix}" for suffix in files.DOWNLOADED]
    try:
        return Path(snapshot_download(name, allow_patterns=patterns))
    except Exception as error:  # of the network, of the hub, of the name
        reason = str(error).strip().partition("\n")[0]
        raise UserError(f"{name}: cannot be downloaded: {reason}") from error
