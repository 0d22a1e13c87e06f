"""Fine-tuning speed next to Hugging Face's Trainer: both in one run, with their ratio.

    python benchmarks/tuning.py RUN --train GLUE/SST-2/train.tsv --dev GLUE/SST-2/dev.tsv
                                [--examples 2000] [--rounds 3] [--processor-time]

RUN is an encoder that exports. Both sides start from its weights and take one epoch over the same
examples, read beforehand, in batches of 32, with the same rate, schedule, decay and clipping. The
Trainer pads each batch to its longest example; it runs in bf16 and in fp32, and the better counts
(in fp32 alone where the hardware has no bf16).
The sides take turns, and the ratio is the median of the rounds' ratios. Scoring the dev examples is
not timed; both accuracies are printed. On a busy machine `--processor-time` measures the time that
the process itself computes, with one thread on either side.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("GOMP_SPINCOUNT", "1000")

import numpy as np
import torch

import foreword
from foreword.cli._process import configure_process
from foreword.interop.exporting import export
from foreword.runs.run_folder import open_run
from foreword.train.device import choose_device, multiplies_bf16
from foreword.train.loop import Loop

BATCH, TARGET = 32, 3.0
Clock = Callable[[], float]
Examples = list[tuple[str, ...]]


def ours(run: str, train: Examples, dev: Examples, out: Path, clock: Clock) -> dict[str, float]:
    """Return the seconds of our steps, the accuracy on the dev examples, and the rate."""
    seconds = 0.0
    plain = Loop._step

    def timed(loop: Loop, *arguments: Any) -> Any:
        nonlocal seconds
        start = clock()
        made = plain(loop, *arguments)
        seconds += clock() - start
        return made

    Loop._step = timed  # type: ignore[method-assign,assignment]
    try:
        tuned = foreword.tune(
            run, train, dev, seeds=1, epochs=1, batch=BATCH, out=out, name=out.name, progress=False
        )
    finally:
        Loop._step = plain  # type: ignore[method-assign]
    row = tuned.rows[0]
    return {"seconds": seconds, "accuracy": row["accuracy"], "lr": row["lr"]}


def theirs(
    model: Path, train: Examples, dev: Examples, lr: float, clock: Clock, *, bf16: bool
) -> dict[str, float]:
    """Return the seconds and the accuracy of the Trainer."""
    import transformers as hf

    hf.logging.set_verbosity_error()
    tokenizer = hf.AutoTokenizer.from_pretrained(model)
    network = hf.AutoModelForSequenceClassification.from_pretrained(model, num_labels=2)
    labels = sorted({row[1] for row in train})

    def encoded(rows: Examples) -> list[dict[str, Any]]:
        texts = [[row[0] for row in rows]] + (
            [[row[2] for row in rows]] if len(rows[0]) > 2 else []
        )
        ids = tokenizer(*texts, truncation=True, max_length=128)
        given = [dict(zip(ids, values, strict=True)) for values in zip(*ids.values(), strict=True)]
        return [g | {"labels": labels.index(row[1])} for g, row in zip(given, rows, strict=True)]

    with tempfile.TemporaryDirectory() as folder:
        settings = hf.TrainingArguments(
            folder, per_device_train_batch_size=BATCH, num_train_epochs=1, learning_rate=lr,
            warmup_steps=0.1, weight_decay=0.01, max_grad_norm=1.0, bf16=bf16, report_to=[],
            save_strategy="no", logging_strategy="no", disable_tqdm=True,
            use_cpu=not torch.cuda.is_available(), dataloader_pin_memory=False,
        )  # fmt: skip
        trainer = hf.Trainer(
            network, settings, train_dataset=encoded(train),
            data_collator=hf.DataCollatorWithPadding(tokenizer),
        )  # fmt: skip
        trainer.remove_callback(hf.PrinterCallback)
        start = clock()
        trainer.train()
        seconds = clock() - start
        found = trainer.predict(encoded(dev))
    accuracy = float(np.mean(found.predictions.argmax(1) == found.label_ids))
    return {"seconds": seconds, "accuracy": accuracy}


def read(file: Path, count: int | None) -> Examples:
    """Return the first examples of a file of GLUE: text, label and perhaps a second text."""
    with file.open(encoding="utf-8") as lines:
        names, *rows = [line.rstrip("\n").split("\t") for line in lines]
    is_pair = "sentence1" in names
    order = ("sentence1", "label", "sentence2") if is_pair else ("sentence", "label")
    columns = [names.index(name) for name in order]
    return [tuple(row[column].strip() for column in columns) for row in rows[:count]]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run")
    parser.add_argument("--train", type=Path, required=True)
    parser.add_argument("--dev", type=Path, required=True)
    parser.add_argument("--examples", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--processor-time", action="store_true")
    arguments = parser.parse_args()
    configure_process()
    if arguments.processor_time:
        torch.set_num_threads(1)
    clock = time.process_time if arguments.processor_time else time.perf_counter
    train, dev = read(arguments.train, arguments.examples), read(arguments.dev, None)
    ratios = []
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"  # a copy, since scores are written into it
        shutil.copytree(arguments.run, run, ignore=shutil.ignore_patterns("shards", "evaluations"))
        export(open_run(run), Path(folder) / "model")
        for number in range(arguments.rounds):
            mine = ours(str(run), train, dev, Path(folder) / f"tuned-{number}", clock)
            sides = {
                name: theirs(Path(folder) / "model", train, dev, mine["lr"], clock, bf16=bf16)
                for name, bf16 in (("bf16", True), ("fp32", False))
                if not bf16 or multiplies_bf16(choose_device("auto"))
            }
            ratios.append(min(side["seconds"] for side in sides.values()) / mine["seconds"])
            shown = {"Foreword": mine} | {f"Trainer {name}": side for name, side in sides.items()}
            rates = ", ".join(
                f"{name} {len(train) / side['seconds']:,.0f} (accuracy {side['accuracy']:.3f})"
                for name, side in shown.items()
            )
            print(f"examples/s: {rates}; ratio {ratios[-1]:.2f}", flush=True)
    print(f"median ratio {statistics.median(ratios):.2f} (at least {TARGET})")


if __name__ == "__main__":
    main()
