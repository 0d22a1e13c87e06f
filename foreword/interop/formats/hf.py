"""Folders of Hugging Face's transformers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from foreword import kinds
from foreword.errors import UserError
from foreword.interop import exporting, importing
from foreword.interop.formats._contract import ExchangeResult
from foreword.runs.trained_model import TrainedModel

NOT_CHECKED = "not checked against transformers, which is not installed"


@dataclass(frozen=True)
class HF:
    """A folder that AutoModel and AutoTokenizer read without code of ours.

    Nothing in it is run and nothing is passed over: a setting or a tensor that is not known here is
    refused by its name. Both ways end with a check of the logits, where transformers is installed.

    Attributes:
        family: bert, gpt2, ...; of an export, the one that fits if unsaid.
        download: whether the source of an import is the name of a model on the hub.
    """

    family: str = ""
    download: bool = False

    def write(self, trained: TrainedModel, out: Path) -> ExchangeResult:
        """See `Format`."""
        trained, left = exporting.without_boundary_head(trained)
        found = exporting.export(trained, out, self.family)
        difference = exporting.check(trained, out, found)
        facts = {"folder": str(out), "architecture": found.architecture_of(trained.recipe)}
        notes = left + found.notes(trained.recipe)
        return ExchangeResult(facts | difference, (*notes, *_unchecked(difference)))

    def read(self, source: str, run: Path) -> ExchangeResult:
        """See `Format`."""
        if self.family:
            raise UserError("--family: an imported folder says what it is; leave it out")
        folder = _fetched(source) if self.download else Path(source)
        if not folder.is_dir():
            raise UserError(f"{source}: no such folder; a name on the hub needs --download")
        found = importing.read(folder)
        difference = importing.check(found)
        reading = importing.reading_notes(found)
        importing.save(found, run)
        facts = {
            "run": str(run),
            "family": kinds.name_of(found.family),
            "parameters": found.model.count_parameters(),
            "vocabulary": found.vocab.size,
        }
        notes = (*found.notes, *reading, *_unchecked(difference))
        return ExchangeResult(facts | difference, notes)


def _unchecked(difference: dict[str, float | None]) -> tuple[str, ...]:
    return (NOT_CHECKED,) if difference["logit_difference"] is None else ()


def _fetched(name: str) -> Path:
    """A folder with the files of a model on the hub."""
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise UserError("--download needs: pip install 'foreword[hf]'") from error
    wanted = ["*.json", "*.safetensors", "*.txt", "*.model"]
    try:
        return Path(snapshot_download(name, allow_patterns=wanted))
    except Exception as error:  # of the network, of the hub, of the name
        reason = str(error).strip().partition("\n")[0]
        raise UserError(f"{name}: cannot be downloaded: {reason}") from error
