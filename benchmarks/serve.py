"""Serving: tokens per second and latency by the number of clients, and requests that are wrong.

    python -m benchmarks.serve runs/gpt              # 1, 8 and 32 clients, beside one at a time
    python -m benchmarks.serve runs/gpt --bad 10000  # wrong requests: none may be answered by 500

Each client asks again as soon as it is answered, with prompts of several lengths, over HTTP.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np

WORDS = ["the", "river", "a", "cold", "morning", "and", "town", "in", "of", "April"]
MESSAGES = [{"role": "user", "content": "a"}]
RIGHT: dict[str, dict[str, Any]] = {
    "/v1/completions": {"prompt": "a", "max_tokens": 2},
    "/v1/chat/completions": {"messages": MESSAGES, "max_tokens": 2},
    "/v1/embeddings": {"input": "a"},
    "/fill": {"text": "a [MASK]"},
    "/score": {"text": "a"},
    "/predict": {"data": ["a"]},
    "/translate": {"text": "a", "max_tokens": 2},
    "/tokenize": {"prompt": "a"},
    "/detokenize": {"tokens": [9]},
    **{
        f"/inspect/{name}": {"text": "a cat"}
        for name in ("text", "lens", "next", "counts", "pieces")
    },
    "/inspect/beam": {"text": "a cat", "max_tokens": 2},
    "/inspect/attention": {"text": "a cat"},
    "/inspect/alignment": {"text": "a cat", "target": "a"},
    "/inspect/word": {"text": "a cat", "start": 2, "stop": 5},
    "/inspect/analogy": {"a": "a", "b": "cat", "c": "a"},
}
PATHS = tuple(RIGHT)
KEYS = (
    "model", "prompt", "max_tokens", "temperature", "top_p", "top_k", "seed", "n", "stop", "stream",
    "logprobs", "echo", "messages", "input", "encoding_format", "text", "top", "source", "data",
    "beams", "tokens", "stride", "threshold", "min_tokens", "stream_options", "suffix", "promt",
    "start", "others", "layer", "a", "target",
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 3, 0.5, -0.0, 1e308, 2**31, 2**63, -(2**70), "", "a", " ", "\0",
    "[MASK]", "<extra_id_0>", "\ud800", "\N{SNOWMAN}" * 9, "word " * 400, [], [[]], [0], [-1],
    [10**9], ["a", 1], [None], [[1, 2], [3]], {}, {"a": {"b": []}}, [{"role": "user"}], "NaN",
    [{"role": "user", "content": "hi"}], [{"context": "a", "question": "b"}], [["a", "b"]],
    {"from": 1, "to": 2}, [{"text": "a", "x": float("inf")}], [["a"], "b"], ["a"] * 3000,
)  # fmt: skip


@contextmanager
def serving(run: str, *options: str) -> Iterator[tuple[str, Path]]:
    """Serve a run in a process of its own, and yield the address and the process's statistics."""
    command = [sys.executable, "-m", "foreword", "serve", run, "--port", "0", *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        address = ""
        for line in process.stderr:
            if line.startswith("serving at "):
                address = line.split()[2].rstrip(",")
                break
            print(line, end="")
        try:
            yield address, Path(f"/proc/{process.pid}/stat")
        finally:
            process.terminate()
            rest = process.stderr.read()
            process.wait()
    print(rest, end="")


def processor_seconds(statistics: Path) -> float:
    """Return the processor time of a process, which other processes hardly change; nan unknown."""
    if not statistics.is_file():
        return float("nan")
    fields = statistics.read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def load(address: str, clients: int, requests: int, tokens: int) -> dict[str, Any]:
    """Ask from several clients; return rates and latencies."""
    waits: list[float] = []
    firsts: list[float] = []
    left = iter(range(requests))
    limits = httpx.Limits(max_connections=clients)

    async def client(http: httpx.AsyncClient) -> None:
        for number in left:
            prompt = " ".join(random.Random(number).choices(WORDS, k=4 + number % 24))
            body = {
                "prompt": prompt, "max_tokens": tokens, "min_tokens": tokens, "seed": number,
                "stream": True,
            }  # fmt: skip
            begun = time.perf_counter()
            is_first = True
            async with http.stream("POST", "/v1/completions", json=body) as answer:
                answer.raise_for_status()
                async for _ in answer.aiter_lines():
                    if is_first:
                        firsts.append(time.perf_counter() - begun)
                    is_first = False
            waits.append(time.perf_counter() - begun)

    begun = time.perf_counter()
    async with httpx.AsyncClient(base_url=address, timeout=600, limits=limits) as http:
        await asyncio.gather(*(client(http) for _ in range(clients)))
    seconds = time.perf_counter() - begun
    return {
        "clients": clients,
        "tokens": requests * tokens,
        "tokens/s": requests * tokens / seconds,
        **{f"first {p} %, s": float(np.percentile(firsts, p)) for p in (50, 99)},
        **{f"all {p} %, s": float(np.percentile(waits, p)) for p in (50, 99)},
    }


def bad_requests(count: int, seed: int = 1) -> Iterator[tuple[str, bytes]]:
    """Yield paths and bodies, most of which are wrong in some way."""
    rng = random.Random(seed)
    for _ in range(count):
        body = {rng.choice(KEYS): rng.choice(VALUES) for _ in range(rng.randint(0, 5))}
        path = rng.choice(PATHS)
        if rng.random() < 0.7:  # a request that is right but for one key, if that is wrong
            body = {**RIGHT[path], rng.choice(KEYS): rng.choice(VALUES)}
        data = json.dumps(body).encode()
        if rng.random() < 0.1:  # broken JSON
            at = rng.randrange(len(data))
            data = data[:at] + rng.randbytes(rng.randint(0, 3)) + data[at + rng.randint(0, 9) :]
        yield path, data


async def bad(address: str, count: int) -> Counter[int]:
    """Send wrong requests; return how often each status was answered."""
    statuses: Counter[int] = Counter()
    requests = bad_requests(count)
    async with httpx.AsyncClient(base_url=address, timeout=600) as http:

        async def client() -> None:
            for path, data in requests:
                answer = await http.post(path, content=data)
                statuses[answer.status_code] += 1
                if answer.status_code >= 500:
                    print(path, data[:300], answer.text[:300])

        await asyncio.gather(*(client() for _ in range(16)))
    return statuses


def show(name: str, row: dict[str, Any]) -> None:
    """Print a row."""
    cells = (f"{key} {value:,.4g}" for key, value in row.items())
    print(f"{name:>16}  {'  '.join(cells)}", flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run")
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--bad", type=int, default=0)
    given = parser.parse_args(arguments)
    if given.bad:
        with serving(given.run) as (address, _):
            print(dict(sorted(asyncio.run(bad(address, given.bad)).items())))
        return
    for name, together in (("together", "32"), ("one at a time", "1")):
        with serving(given.run, "--together", together) as (address, statistics):
            asyncio.run(load(address, 2, 4, given.tokens))  # warm
            for clients in (1, 8, 32):
                before = processor_seconds(statistics)
                row = asyncio.run(load(address, clients, given.requests, given.tokens))
                used = processor_seconds(statistics) - before
                show(name, {**row, "processor ms/token": 1e3 * used / row["tokens"]})


if __name__ == "__main__":
    main()
