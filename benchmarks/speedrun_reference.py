"""The references of the speed run: Hugging Face's Trainer on the same tokens."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from foreword.data.prepared_text import PreparedText
from foreword.runs.recipe import Recipe
from foreword.runs.setup import heldout_feed, training_feed
from foreword.text.tokenizer import Tokenizer
from foreword.train.device import choose_device, multiplies_bf16
from foreword.types import Vocab

RATES = (5e-5, 2e-4, 5e-4, 1e-3, 2e-3, 4e-3)  # the default of the Trainer, and five others
BATCH = 8  # rows a step: the default of the Trainer
SIZE = {"d_model": 256, "layers": 4, "heads": 4}


class Rows(torch.utils.data.IterableDataset[dict[str, Any]]):
    """The rows that our runs read, in their order, without end."""

    def __init__(self, recipe: Recipe, shards: PreparedText, vocab: Vocab, batch: int) -> None:
        super().__init__()
        self._batch = batch
        self.packed = training_feed(recipe, shards.train, vocab).packed

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield one row after another."""
        first = 0
        while True:
            rows = self.packed.rows(np.arange(first, first + self._batch))
            first += self._batch
            yield from ({"input_ids": ids} for ids in rows.ids)


class Reference:
    """A model of `transformers`, and its Trainer.

    Args:
        name: "causal" or "masked".
        recipe: our recipe, whose rows it reads.
        shards: the text.
        batch: rows a step.
    """

    def __init__(self, name: str, recipe: Recipe, shards: PreparedText, batch: int = BATCH) -> None:
        self._name, self._recipe, self._shards, self._batch = name, recipe, shards, batch
        self._vocab = Tokenizer.load(shards.folder / "tokenizer").vocab
        self._model = _model(name, self._vocab.size, recipe.packing.length)

    def train(self, minutes: float, rate: float, steps: int = 0) -> list[float]:
        """Train with a rate that rises for a twentieth and falls to zero.

        Args:
            minutes: of training.
            rate: peak learning rate.
            steps: replace the minutes, unless 0.

        Returns:
            The time after each step, in seconds.
        """
        import transformers as hf

        hf.logging.set_verbosity_error()
        rows = Rows(self._recipe, self._shards, self._vocab, self._batch)
        began, times = time.monotonic(), []

        def done(step: int) -> float:
            return step / steps if steps else (time.monotonic() - began) / (60 * minutes)

        class Clock(hf.TrainerCallback):  # type: ignore[misc]
            """Lets the rate fall by the time or the steps, and stops at their end."""

            def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
                share = min(1.0, done(state.global_step))
                for group in kwargs["optimizer"].param_groups:
                    group["lr"] = rate * min(share / 0.05, (1 - share) / 0.95, 1.0)

            def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
                times.append(time.monotonic())
                control.should_training_stop = done(state.global_step) >= 1

        has_bf16 = multiplies_bf16(choose_device("auto"))
        with tempfile.TemporaryDirectory() as folder:
            arguments = hf.TrainingArguments(
                folder, per_device_train_batch_size=self._batch, max_steps=10**7,
                learning_rate=rate, lr_scheduler_type="constant", bf16=has_bf16, report_to=[],
                save_strategy="no", logging_strategy="no", disable_tqdm=True,
                use_cpu=not torch.cuda.is_available(),
            )  # fmt: skip
            collate = _Masking(self._vocab) if self._name == "masked" else _copied
            trainer = hf.Trainer(
                self._model, arguments, train_dataset=rows, data_collator=collate,
                callbacks=[Clock()],
            )  # fmt: skip
            trainer.remove_callback(hf.PrinterCallback)
            trainer.train()
        return times

    def loss(self, judge: Recipe) -> float:
        """Return the nats per prediction on all held-out text.

        Args:
            judge: our recipe with the objective that the model is judged by.
        """
        return _judged(self._model, judge, self._shards, self._vocab)


def _model(name: str, vocab: int, length: int) -> Any:
    import transformers as hf

    width, layers, heads = SIZE["d_model"], SIZE["layers"], SIZE["heads"]
    if name == "masked":
        return hf.BertForMaskedLM(
            hf.BertConfig(
                vocab_size=vocab,
                hidden_size=width,
                num_hidden_layers=layers,
                num_attention_heads=heads,
                intermediate_size=4 * width,
                max_position_embeddings=length,
            )
        )
    return hf.GPT2LMHeadModel(
        hf.GPT2Config(
            vocab_size=vocab,
            n_embd=width,
            n_layer=layers,
            n_head=heads,
            n_positions=length,
            use_cache=False,
        )
    )


def _copied(rows: list[dict[str, Any]]) -> dict[str, Any]:
    ids = torch.from_numpy(np.stack([row["input_ids"] for row in rows]))
    return {"input_ids": ids, "labels": ids}


class _Masking:
    """Hides 15 % of the ordinary tokens, 80 % of them by [MASK] and 10 % by random tokens."""

    def __init__(self, vocab: Vocab) -> None:
        self.vocab, self.rng = vocab, np.random.default_rng(1)

    def __call__(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        ids = np.stack([row["input_ids"] for row in rows])
        ordinary = np.flatnonzero(~self.vocab.is_special)
        chosen = (self.rng.random(ids.shape) < 0.15) & ~self.vocab.is_special[ids]
        fate = self.rng.random(ids.shape)
        inputs = np.where(chosen & (fate < 0.8), self.vocab.id("[MASK]"), ids)
        random_ids = self.rng.choice(ordinary, ids.shape)
        inputs = np.where(chosen & (fate >= 0.9), random_ids, inputs)
        labels = np.where(chosen, ids, -100)
        return {"input_ids": torch.from_numpy(inputs), "labels": torch.from_numpy(labels)}


@torch.no_grad()
def _judged(model: Any, judge: Recipe, shards: PreparedText, vocab: Vocab) -> float:
    """Return the nats per prediction on the rows and targets that our models are judged on."""
    model.eval()
    nats, count = 0.0, 0.0
    for batch in heldout_feed(judge, shards.heldout, vocab).heldout(1 << 62):
        ids = torch.from_numpy(np.asarray(batch.ids))
        targets = torch.from_numpy(np.asarray(batch.targets))
        weights = torch.from_numpy(np.asarray(batch.weights))
        logits = model(input_ids=ids).logits.float()
        losses = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
        nats += float((losses * weights.flatten()).sum())
        count += float(weights.sum())
    return nats / count
