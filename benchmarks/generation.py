"""Generation speed next to `transformers.generate`: both in one run, with their ratio.

    python benchmarks/generation.py RUN [RUN ...] --text FILE [--batch 1 16] [--rounds 5]

RUN is a decoder that exports, such as one of modern_decoder_mini or gpt2_mini. Prompts are the
first tokens of documents of FILE, those of a batch equally many. Both sides generate greedily with
a key-value cache in float32 from the same weights, and stop at the same tokens; the number of texts
that are equal token by token is printed. `transformers` in bf16, whose tokens differ, is measured
beside. Each of theirs is measured with one thread and with all, and the faster counts. The sides
take turns, and the ratio is the median of the rounds' ratios. On a busy machine `--processor-time`
measures the time that the process itself computes, with one thread on either side.
"""

from __future__ import annotations

import argparse
import os
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

from foreword.cli._process import configure_process
from foreword.data.read_documents import read_documents
from foreword.evaluation.decoding import decode, stops_of
from foreword.evaluation.sampling import GREEDY, Sampling
from foreword.evaluation.starts import GeneratedTokens, Start
from foreword.interop.exporting import export
from foreword.runs.run_folder import open_run
from foreword.runs.trained_model import TrainedModel
from foreword.train.device import choose_device, multiplies_bf16
from foreword.types import Array

PROMPT = 16  # tokens of a prompt, besides the one that begins a document
TARGETS = {1: 2.5, 16: 2.0}


def prompts_of(prompted: TrainedModel, file: Path, count: int) -> list[Array]:
    """Return the first tokens of documents of a file."""
    found: list[Array] = []
    for document in read_documents([file]):
        ids = prompted.tokenizer.encode(document.text[:1000])[:PROMPT]
        if len(ids) == PROMPT:
            found.append(np.concatenate([prompted.prompt_prefix, ids]))
        if len(found) == count:
            return found
    raise SystemExit(f"{file}: has fewer than {count} documents of {PROMPT} tokens")


def theirs(model: Any, prompts: list[Array], tokens: int, stops: Array) -> list[Array]:
    """Return what `transformers` generates, cut at the first stop token."""
    ids = torch.from_numpy(np.stack(prompts))
    with torch.inference_mode():
        out = model.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, use_cache=True,
            max_new_tokens=tokens, eos_token_id=stops.tolist(), pad_token_id=int(stops[0]),
        )  # fmt: skip
    rows = out[:, ids.shape[1] :].numpy()
    ends = [np.flatnonzero(np.isin(row, stops)) for row in rows]
    return [row[: end[0]] if len(end) else row for row, end in zip(rows, ends, strict=True)]


def measure(run: str, arguments: argparse.Namespace) -> None:
    """Measure and print one run, for each size of batch."""
    import transformers

    transformers.logging.set_verbosity_error()
    prompted = open_run(run)
    stops = stops_of(prompted)
    with tempfile.TemporaryDirectory() as folder:
        export(prompted, Path(folder) / "model")
        load = transformers.AutoModelForCausalLM.from_pretrained
        models = {
            name: load(Path(folder) / "model", dtype=dtype).eval()
            for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16))
            if name == "fp32" or multiplies_bf16(choose_device("cpu"))
        }
    prompts = prompts_of(prompted, arguments.text, max(arguments.batch) * arguments.rounds)
    sampling = Sampling(tokens=arguments.tokens, temperature=0.0)
    clock = time.process_time if arguments.processor_time else time.perf_counter
    threads = [1] if arguments.processor_time else [1, torch.get_num_threads()]
    for batch in arguments.batch:
        ratios, equal, rates = [], 0, []
        warm = [Start(None, ids) for ids in prompts[:batch]]
        decode(prompted, warm, Sampling(tokens=8), stops)
        for model in models.values():
            theirs(model, prompts[:batch], 8, stops)
        for number in range(arguments.rounds):
            some = prompts[number * batch : (number + 1) * batch]
            starts = [Start(None, ids) for ids in some]

            def ours(starts: list[Start] = starts) -> list[GeneratedTokens]:
                return decode(prompted, starts, sampling, stops)

            torch.set_num_threads(threads[-1])
            mine, my_seconds = timed(ours, clock)
            seconds: dict[str, float] = {}
            for name, model in models.items():
                for count in threads:
                    torch.set_num_threads(count)
                    texts, taken = timed(
                        lambda model=model, some=some: theirs(model, some, sampling.tokens, stops),
                        clock,
                    )
                    seconds[name] = min(taken, seconds.get(name, taken))
                if name == "fp32":
                    expected = texts
            equal += sum(
                np.array_equal(one.ids, other) for one, other in zip(mine, expected, strict=True)
            )
            size = sum(len(text.ids) for text in mine)
            rates.append([size / my_seconds, *(size / s for s in seconds.values())])
            ratios.append(seconds["fp32"] / my_seconds)
        mine_median, *medians = (statistics.median(column) for column in zip(*rates, strict=True))
        shown = "  ".join(f"{n} {rate:>7,.0f}" for n, rate in zip(models, medians, strict=True))
        print(
            f"{Path(run).name:<16} batch {batch:>2}: Foreword {mine_median:>7,.0f}   transformers "
            f"{shown} tokens/s   ratio to fp32 "
            f"{statistics.median(ratios):.2f} ({', '.join(f'{r:.2f}' for r in ratios)}; at least "
            f"{TARGETS.get(batch, 1)}); equal texts {equal} of {batch * arguments.rounds}",
            flush=True,
        )


def timed(side: Any, clock: Callable[[], float]) -> tuple[Any, float]:
    """Return what a side returns, and its seconds."""
    start = clock()
    returned = side()
    return returned, clock() - start


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+")
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--batch", type=int, nargs="*", default=list(TARGETS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--processor-time", action="store_true")
    parser.add_argument("--tokens", type=int, default=GREEDY.tokens)
    arguments = parser.parse_args()
    configure_process()
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads; tokens/s, medians")
    for run in arguments.runs:
        measure(run, arguments)


if __name__ == "__main__":
    main()
