"""`foreword export`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from foreword.display.results import Facts, Output
from foreword.errors import UserError
from foreword.verbs._contract import ARGUMENT, PathName, Verb

if TYPE_CHECKING:
    from foreword.interop.formats._contract import ExchangeResult


@dataclass(frozen=True)
class Export(Verb[Output]):
    """Export a run or a fine-tuned model for other software.

        foreword.export("runs/books/tuned/reviews", "classifier")

    hf writes a folder that transformers loads without custom code: a run with AutoModel and
    AutoTokenizer; a classifier with AutoModelForSequenceClassification or
    pipeline("text-classification", FOLDER, truncation=True), which cuts texts as Foreword does;
    sentence embeddings with SentenceTransformer of sentence_transformers.

    onnx writes a graph for onnxruntime, with the tokenizer. It computes the outputs of a fine-tuned
    model's head, or the logits of every token of an encoder or a decoder. --int8 adds a graph of 8
    bits, and says how many answers stay the same. An average of strategy best becomes a graph for
    each network, counts as plain files, and predict.py, which reads them.

    arpa writes n-grams for KenLM, and word2vec the embeddings of any model for gensim. `foreword
    import` reads hf, arpa and word2vec back.

    Each folder has a README.md, its model card: what the model is, how it was made, its scores and
    limits, and how to load it.

    --adapter RUN writes only what tuning with --strategy lora changed, which PeftModel of peft puts
    on RUN's own export, opened with the adapter's config.json.

    Attributes:
        run: a run folder, one of its checkpoints/step-*, or what 'foreword tune' wrote.
        out: folder or file to create.
        format: what to write: hf (Hugging Face), onnx, arpa (n-grams) or word2vec (word vectors).
        family: with hf: family of transformers, bert, gpt2, ...; default: the first that matches.
        binary: with word2vec: the binary format, not the text one.
        int8: with onnx: write a graph of 8-bit weights beside the one of 32 bits.
        adapter: run from which a model was tuned with --strategy lora: write the change alone, for
            peft.
    """

    run: Annotated[PathName, ARGUMENT]
    out: PathName
    format: str = "hf"
    family: str = ""
    binary: bool = False
    int8: bool = False
    adapter: PathName | None = None

    def __call__(self) -> Output:
        from foreword.interop.formats._contract import open_format
        from foreword.runs.run_folder import open_run

        run = Path(self.run)
        exporter = open_format(self.format, family=self.family, binary=self.binary, int8=self.int8)
        if self.adapter is not None:
            return self._adapter(Path(self.adapter))
        if (run / "parts.json").is_file() and self.format == "onnx" and (whole := self._average()):
            return whole
        network = run / "fine_tuned"
        if (run / "parts.json").is_file() and not network.is_dir():
            of_texts = "writes averages of labels and numbers of texts"
            other = f"which {of_texts} alone; tune"
            if self.format != "onnx":
                other = f"but --format onnx {of_texts}; or tune"
            raise UserError(
                f"{run}: an average of candidates, without a network for {self.format}, {other} "
                "with --strategy full"
            )
        if (run / "parts.json").is_file() and network.is_dir():
            output = replace(self, run=network)()
            note = f"the network alone, a part of the average in {run}, whose scores it has not"
            return Output([note, *output.parts], output.data)
        if (run / "labels.json").is_file() and not (run / "run.json").is_file():
            return self._tuned()
        trained = open_run(run, "cpu")
        exported = exporter.write(trained, Path(self.out))
        library = "onnx" if self.format == "onnx" else "transformers"
        return self._shown(library, exported, trained.notes)

    def _average(self) -> Output | None:
        """Export an average of candidates; None if it is of a task whose averages are not."""
        from foreword.tuned_exports import average
        from foreword.tuning.best import chosen_model

        chosen = chosen_model.load(Path(self.run), "cpu")
        if not average.can_export(chosen.task):
            return None
        return self._shown("onnx", average.export(chosen, Path(self.out), int8=self.int8))

    def _tuned(self) -> Output:
        from foreword.tuned_exports import hf, onnx
        from foreword.tuning.tuned_model import load_tuned

        if self.format not in ("hf", "onnx"):
            raise UserError(f"--format {self.format}: a fine-tuned model is exported as hf or onnx")
        tuned, out = load_tuned(Path(self.run), "cpu"), Path(self.out)
        if self.format == "onnx":
            return self._shown("onnx", onnx.export(tuned, out, int8=self.int8))
        library = "sentence-transformers" if tuned.task.reader.compares_texts else "transformers"
        return self._shown(library, hf.export(tuned, out, self.family))

    def _adapter(self, base: Path) -> Output:
        from foreword.tuned_exports import adapter

        if self.format != "hf":
            raise UserError(f"--adapter: requires --format hf, got {self.format}")
        change = adapter.export(Path(self.run), base, Path(self.out), self.family)
        return self._shown("peft", change)

    def _shown(self, library: str, result: ExchangeResult, notes: Sequence[str] = ()) -> Output:
        """Write the card of an exported folder, which `library` opens, and return the result."""
        from foreword.reports import model_card

        if Path(self.out).is_dir():
            model_card.write(Path(self.run), Path(self.out), library, result.facts)
        return Output([*notes, *result.notes, Facts(result.facts)], dict(result.facts))
