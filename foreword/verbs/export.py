"""`foreword export`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from foreword.display.results import Facts, Output
from foreword.errors import UserError
from foreword.verbs._contract import ARGUMENT, PathName, Verb


@dataclass(frozen=True)
class Export(Verb[Output]):
    """Export a run or a fine-tuned model for other software.

        foreword.export("runs/books/tuned/reviews", "classifier")

    hf writes a folder that AutoModel and AutoTokenizer of transformers load without custom code;
    of a fine-tuned model, AutoModelForSequenceClassification and
    pipeline("text-classification", FOLDER, truncation=True), which cuts texts as Foreword does;
    of sentence embeddings, SentenceTransformer of sentence_transformers.
    arpa writes a file of n-grams that KenLM reads. `foreword import` reads both back. word2vec
    writes a file of vectors that gensim reads, for any model with embeddings.

    --adapter RUN writes the change of a model tuned with lora alone, which PeftModel of peft puts
    on RUN's own export, opened with the adapter's config.json.

    Attributes:
        run: a run folder, one of its checkpoints/step-*, or what 'foreword tune' wrote.
        out: folder or file to create.
        format: hf (Hugging Face), arpa (n-grams) or word2vec (word vectors).
        family: with hf: bert, gpt2, ...; default: the first that matches.
        binary: with word2vec: the binary format, not the text one.
        adapter: for peft: the change of a model tuned with lora alone; the run it began with.
    """

    run: Annotated[PathName, ARGUMENT]
    out: PathName
    format: str = "hf"
    family: str = ""
    binary: bool = False
    adapter: PathName | None = None

    def __call__(self) -> Output:
        from foreword.interop.formats._contract import open_format
        from foreword.runs.run_folder import open_run

        run = Path(self.run)
        if self.adapter is not None:
            return self._adapter(Path(self.adapter))
        if (run / "labels.json").is_file() and not (run / "run.json").is_file():
            return self._tuned()
        exporter = open_format(self.format, family=self.family, binary=self.binary)
        trained = open_run(run, "cpu")
        exported = exporter.write(trained, Path(self.out))
        return _shown(exported.facts, [*trained.notes, *exported.notes])

    def _tuned(self) -> Output:
        """Export a fine-tuned model with its head."""
        from foreword.interop.formats.hf import unchecked
        from foreword.tuning import exporting
        from foreword.tuning.tuned_model import load_tuned

        if self.format != "hf":
            raise UserError(f"--format {self.format}: a fine-tuned model is exported as hf")
        exported = exporting.export(load_tuned(Path(self.run), "cpu"), Path(self.out), self.family)
        facts = {"folder": str(self.out), "architecture": exported.architecture}
        notes = [*exported.notes, *unchecked(exported.difference)]
        return _shown(facts | dict(exported.difference), notes)

    def _adapter(self, base: Path) -> Output:
        """Export the change that LoRA made."""
        from foreword.tuning import adapter

        if self.format != "hf":
            raise UserError(f"--adapter: requires --format hf, got {self.format}")
        change = adapter.export(Path(self.run), base, Path(self.out), self.family)
        grown = f"the vocabulary has grown: resize_token_embeddings({change.tokens}) first"
        facts = {
            "folder": str(self.out),
            "rank": change.rank,
            "matrices": len(change.factors),
            "saved whole": ", ".join(change.whole) or None,
        }
        return _shown(facts, [] if change.tokens is None else [grown])


def _shown(facts: Mapping[str, Any], notes: Sequence[str]) -> Output:
    return Output([*notes, Facts(facts)], dict(facts))
