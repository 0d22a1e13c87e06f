"""The references of the speed run, on the same tokens: Hugging Face's Trainer, and a plain loop."""

from __future__ import annotations

import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from plain_pytorch import PlainTransformer
from torch import Tensor, nn
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


class Reference(ABC):
    """A model, and how it is trained on the rows of a recipe of ours.

    Args:
        objective: "causal" or "masked".
        recipe: our recipe.
        shards: the text.
        batch: rows a step.
    """

    def __init__(
        self, objective: str, recipe: Recipe, shards: PreparedText, batch: int = BATCH
    ) -> None:
        self.objective, self.recipe, self.shards, self.batch = objective, recipe, shards, batch
        self.vocab = Tokenizer.load(shards.folder / "tokenizer").vocab
        self.rows = Rows(recipe, shards, self.vocab, batch)
        self.collate = _Masking(self.vocab) if objective == "masked" else _copied

    def train(self, minutes: float, rate: float, steps: int = 0) -> list[float]:
        """Train with a rate that rises for a twentieth and falls to zero.

        Args:
            minutes: of training.
            rate: peak learning rate.
            steps: replace the minutes, unless 0.

        Returns:
            The time after each step, in seconds.
        """
        began, times = time.monotonic(), list[float]()

        def share() -> float:
            seconds = time.monotonic() - began
            return min(1.0, len(times) / steps if steps else seconds / (60 * minutes))

        def rate_now() -> float:
            return rate * min(share() / 0.05, (1 - share()) / 0.95, 1.0)

        def is_over() -> bool:
            times.append(time.monotonic())
            return share() >= 1

        self._train(rate_now, is_over)
        return times

    @abstractmethod
    def _train(self, rate_now: Callable[[], float], is_over: Callable[[], bool]) -> None:
        """Take steps until one is the last.

        Args:
            rate_now: the learning rate of the next step.
            is_over: to be asked after each step, whether it was the last.
        """

    @abstractmethod
    def _nats(self, ids: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of each target, (batch, length), as (batch, length)."""

    @torch.no_grad()
    def loss(self, judge: Recipe) -> float:
        """Return the nats per prediction on the rows and targets that our models are judged on.

        Args:
            judge: our recipe with the objective that the model is judged by.
        """
        nats, count = 0.0, 0.0
        for batch in heldout_feed(judge, self.shards.heldout, self.vocab).heldout(1 << 62):
            arrays = batch.ids, batch.targets, batch.weights
            ids, targets, weights = (torch.from_numpy(np.asarray(array)) for array in arrays)
            nats += float((self._nats(ids, targets) * weights).sum())
            count += float(weights.sum())
        return nats / count


class Trainer(Reference):
    """BERT or GPT-2 of `transformers`, and its Trainer with its default AdamW."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._model = _model(self.objective, self.vocab.size, self.recipe.packing.length)

    def _train(self, rate_now: Callable[[], float], is_over: Callable[[], bool]) -> None:
        import transformers as hf

        hf.logging.set_verbosity_error()

        class Clock(hf.TrainerCallback):  # type: ignore[misc]
            """Lets the rate fall by the time or the steps, and stops at their end."""

            def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
                for group in kwargs["optimizer"].param_groups:
                    group["lr"] = rate_now()

            def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
                control.should_training_stop = is_over()

        with tempfile.TemporaryDirectory() as folder:
            arguments = hf.TrainingArguments(
                folder, per_device_train_batch_size=self.batch, max_steps=10**7,
                learning_rate=1.0, lr_scheduler_type="constant",
                bf16=multiplies_bf16(choose_device("auto")), report_to=[],
                save_strategy="no", logging_strategy="no", disable_tqdm=True,
                use_cpu=not torch.cuda.is_available(),
            )  # fmt: skip
            trainer = hf.Trainer(
                self._model, arguments, train_dataset=self.rows, data_collator=self.collate,
                callbacks=[Clock()],
            )  # fmt: skip
            trainer.remove_callback(hf.PrinterCallback)
            trainer.train()

    def _nats(self, ids: Tensor, targets: Tensor) -> Tensor:
        logits = self._model.eval()(input_ids=ids).logits.float()
        return F.cross_entropy(logits.transpose(1, 2), targets, reduction="none")


class PlainLoop(Reference):
    """A Transformer as one would write it by hand, compiled, and a loop with fused AdamW.

    Compiling takes about a minute, which is not counted: the first step is taken before the clock
    begins, with a rate of 0. The output layer reads only what is predicted.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        family = {"size": SIZE, "vocab": self.vocab.size, "length": self.recipe.packing.length}
        is_causal = self.objective == "causal"
        torch.manual_seed(1)
        self._model = PlainTransformer(family, 0.0, is_causal=is_causal)
        self._compiled: Any = torch.compile(self._model, dynamic=False)
        self._optimizer = torch.optim.AdamW(self._model.parameters(), lr=0.0, fused=True)
        self._batches = self._endless()
        self._step(0.0)

    def _endless(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield ids, the positions that are predicted in the flattened batch, and their targets.

        Shapes are always the same, as a compiled model requires: the positions are as many as are
        hardly ever masked, and what is too many has the target -100.
        """
        rows, length = iter(self.rows), self.recipe.packing.length
        count = self.batch * (length - 1)
        if self.objective == "masked":
            count = int(0.2 * self.batch * length)
        while True:
            batch = self.collate([next(rows) for _ in range(self.batch)])
            labels = batch["labels"]
            if self.objective == "causal":  # position i predicts token i + 1
                labels = F.pad(labels[:, 1:], (0, 1), value=-100)
            at = (labels.flatten() >= 0).nonzero().flatten()[:count]
            missing = count - len(at)
            yield (
                batch["input_ids"],
                F.pad(at, (0, missing)),
                F.pad(labels.flatten()[at], (0, missing), value=-100),
            )

    def _step(self, rate: float) -> None:
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        has_bf16 = multiplies_bf16(choose_device("auto"))
        with torch.autocast("cpu", torch.bfloat16) if has_bf16 else nullcontext():
            loss = self._compiled(*next(self._batches))
        loss.backward()
        nn.utils.clip_grad_norm_(self._model.parameters(), 1.0)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)

    def _train(self, rate_now: Callable[[], float], is_over: Callable[[], bool]) -> None:
        self._step(rate_now())
        while not is_over():
            self._step(rate_now())

    def _nats(self, ids: Tensor, targets: Tensor) -> Tensor:
        everywhere = torch.arange(ids.numel())
        return self._model.nats(ids, everywhere, targets.flatten()).view(targets.shape)


REFERENCES: dict[str, Callable[..., Reference]] = {"trainer": Trainer, "plain": PlainLoop}


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
                hidden_dropout_prob=0.0,
                attention_probs_dropout_prob=0.0,
            )
        )
    return hf.GPT2LMHeadModel(
        hf.GPT2Config(
            vocab_size=vocab,
            n_embd=width,
            n_layer=layers,
            n_head=heads,
            n_positions=length,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            resid_pdrop=0.0,
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
