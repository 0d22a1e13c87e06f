"""`foreword.load`: a trained model with one method per task."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import overload

from foreword.evaluation import decoding, filling, scoring
from foreword.evaluation.sampling import Sampling
from foreword.evaluation.scorer import padded
from foreword.nn.model import Model
from foreword.runs.recipe import Recipe
from foreword.runs.run_folder import open_run
from foreword.runs.trained_model import TrainedModel
from foreword.settings import config
from foreword.tables.given import require_text, texts_of
from foreword.text.tokenizer import Tokenizer
from foreword.types import Array


class LoadedModel:
    """A trained model, ready to fill, write, score and encode.

        run = foreword.load("runs/bert")
        run.fill("The [MASK] sat on the mat.").blanks[0]

    Args:
        trained: the model to use.
    """

    def __init__(self, trained: TrainedModel) -> None:
        self.trained = trained

    def __repr__(self) -> str:
        return f"<{self.trained.description}, {self.trained.folder}>"

    @property
    def module(self) -> Model:
        """The torch module, in evaluation mode."""
        return self.trained.model

    @property
    def recipe(self) -> Recipe:
        """The recipe it was trained with."""
        return self.trained.recipe

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer it was trained with."""
        return self.trained.tokenizer

    def fill(self, text: str, top: int = 5) -> filling.FilledText:
        """Fill each blank of `text`; see `foreword.evaluation.filling.fill`.

        Raises:
            UserError: the model does not fill blanks, or the text has none.
        """
        require_text(text, "text")
        return filling.fill(self.trained, text, top)

    @overload
    def generate(  # type: ignore[overload-overlap] # a text is not a list of texts here
        self, prompt: str, sampling: Sampling | None = None, **settings: float
    ) -> str: ...

    @overload
    def generate(
        self, prompt: Iterable[str], sampling: Sampling | None = None, **settings: float
    ) -> list[str]: ...

    def generate(
        self, prompt: str | Iterable[str], sampling: Sampling | None = None, **settings: float
    ) -> str | list[str]:
        """Return how each prompt continues: `run.generate("The cat", temperature=0, tokens=20)`.

        Args:
            prompt: one, or several.
            sampling: the settings of sampling.
            settings: fields of `Sampling` that override it.

        Raises:
            UserError: the model does not generate text, a prompt is empty or too long, or a setting
                does not exist.
        """
        settings_used = config.build(Sampling, {**asdict(sampling or Sampling()), **settings})
        prompts = [prompt] if isinstance(prompt, str) else list(texts_of(prompt, "prompt"))
        generations = decoding.generate(self.trained, prompts, settings_used)
        texts = [generation.text for generation in generations]
        return texts[0] if isinstance(prompt, str) else texts

    def score(self, text: str, source: str | None = None) -> scoring.TextScore:
        """Return the log-probability of each token; see `foreword.evaluation.scoring.score`.

        Raises:
            UserError: the text has nothing to score, or a source is missing.
        """
        require_text(text, "text")
        return scoring.score(self.trained, text, source)

    @overload
    def encode(self, text: str) -> Array: ...  # type: ignore[overload-overlap]

    @overload
    def encode(self, text: Iterable[str]) -> list[Array]: ...

    def encode(self, text: str | Iterable[str]) -> Array | list[Array]:
        """Return the last hidden states of a text, or of each of several.

        The special tokens around a document in training (such as [CLS] and [SEP]) surround each
        text and have states too. An encoder-decoder gives the states of its encoder.

        Returns:
            (length, d_model) float32 for each text.

        Raises:
            UserError: a text is longer than the model can read.
        """
        if isinstance(text, str):
            return self._states([text])[0]
        texts = list(texts_of(text, "text"))
        return [row for at in range(0, len(texts), 32) for row in self._states(texts[at : at + 32])]

    def _states(self, texts: Sequence[str]) -> list[Array]:
        encode, wrap = self.tokenizer.encode, self.trained.with_special_tokens
        wrapped = [wrap(encode(text, special=True)) for text in texts]
        states = self.trained.encode(padded(wrapped))
        return [row[: len(ids)] for row, ids in zip(states, wrapped, strict=True)]


def load(path: str | Path, device: str = "auto", precision: str = "fp32") -> LoadedModel:
    """Open a run folder, or one of its checkpoints.

    Args:
        path: a run folder, or one of its `checkpoints/step-*`.
        device: auto, cpu, cuda or mps.
        precision: fp32, bf16 or auto.

    Raises:
        UserError: no such folder, no whole checkpoint, or no such device.
    """
    return LoadedModel(open_run(path, device, precision))
