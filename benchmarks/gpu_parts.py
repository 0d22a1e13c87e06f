"""The parts of `benchmarks/gpu.py`, each run as `gpu_parts.py PART RECORDS DEVICE SIZE SECONDS`.

A part appends a line of JSON to its file of records for each result, as soon as it has it.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from gpu_steps import (
    WARM_STEPS,
    Job,
    build_setup,
    data_sheet,
    released,
    run_step,
    speed,
)

from foreword.runs.setup import compile_blocks
from foreword.train.device import matmul_flops_per_second, wait

PACKAGES = (
    "accelerate", "annotated_types", "matplotlib", "pyarrow", "pytest", "rich", "sacrebleu",
    "safetensors", "scipy", "sklearn", "threadpoolctl", "tokenizers", "transformers", "triton",
    "typer",
)  # fmt: skip
TEXT_BYTES = 16 << 20  # of source text that the short trainings read
ROOT = Path(__file__).resolve().parent.parent


def main(words: list[str]) -> None:
    """Run one part."""
    name, records, device, size, seconds = words
    part, _, argument = name.partition(":")
    job = Job(Path(records), torch.device(device), size, float(seconds))
    if job.device.type == "cuda" and not torch.cuda.is_available():
        job.note("skipped", why="torch sees no CUDA device; use --device cpu")
        raise SystemExit("no CUDA device")
    PARTS[part](job, *([argument] if argument else []))


def machine(job: Job) -> None:
    """Record the machine, and how fast it multiplies and copies."""
    is_cuda = job.device.type == "cuda"
    name = torch.cuda.get_device_name() if is_cuda else platform.processor() or "a CPU"
    capability = ".".join(map(str, torch.cuda.get_device_capability())) if is_cuda else ""
    memory = torch.cuda.get_device_properties(0).total_memory if is_cuda else 0
    job.note("machine", key=0, name=name, capability=capability, memory_gib=memory / 2**30,
             torch=torch.__version__, cuda=torch.version.cuda, python=platform.python_version(),
             cores=os.cpu_count())  # fmt: skip
    # Packages that other parts would use.
    absent = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    job.note("packages", absent=", ".join(absent) or "none")
    if job.is_tiny and not is_cuda:
        return
    # The rates of matrix products and of copies.
    for dtype in (torch.bfloat16, torch.float32):
        rate = matmul_flops_per_second(job.device, dtype) / 1e12
        sheet = data_sheet(name) if dtype == torch.bfloat16 else None
        job.note("products", dtype=str(dtype), tflops=rate, data_sheet=sheet)
    if is_cuda:
        a = torch.empty(1 << 30, dtype=torch.uint8, device=job.device)
        b = torch.empty_like(a)
        b.copy_(a)
        wait(job.device)
        start = time.perf_counter()
        for _ in range(10):
            b.copy_(a)
        wait(job.device)
        job.note("copies", gb_per_second=20 * a.numel() / 1e9 / (time.perf_counter() - start))


def tests(job: Job) -> None:
    """Run the tests marked `gpu`, and record which failed."""
    if job.device.type != "cuda":
        job.note("counts", outcome="skipped: there is no GPU")
        return
    if importlib.util.find_spec("pytest") is None:
        job.note("counts", outcome="skipped: pytest is absent")
        return
    # The command, on the files that hold such tests.
    files = [
        str(file) for file in sorted((ROOT / "tests").rglob("test_*.py"))
        if "mark.gpu" in file.read_text(encoding="utf-8")
    ]  # fmt: skip
    command = [sys.executable, "-m", "pytest", "-m", "gpu", "-v", "--tb=short", "-p",
               "no:cacheprovider", "-o", "addopts=", "-rf"]  # fmt: skip
    if importlib.util.find_spec("xdist"):  # most of their time is compilation, on the processor
        workers = min(12, os.cpu_count() or 1)
        command += ["-p", "xdist", "-n", str(workers), "--dist", "worksteal"]
    if importlib.util.find_spec("pytest_timeout"):
        command += ["-p", "timeout", "--timeout", "100"]
    # Other plug-ins of the machine are not loaded: hypothesis's breaks on a stand-in.
    environment = {
        **os.environ,
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
    }
    process = subprocess.Popen(
        [*command, *files], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        cwd=ROOT, env=environment,
    )  # fmt: skip
    # Its output, with the counts recorded after every test.
    counts: dict[str, int] = {}
    lines = []
    assert process.stdout is not None
    for line in process.stdout:
        print(line, end="")
        lines.append(line)
        outcome = re.search(r"\b(PASSED|FAILED|ERROR|SKIPPED)\b", line)
        test = re.search(r"tests/\S+::.*?(?= (PASSED|FAILED|ERROR|SKIPPED)|$)", line)
        if outcome is None or test is None or " - " in line:
            continue
        counts[outcome[1].lower()] = counts.get(outcome[1].lower(), 0) + 1
        job.note("counts", key=0, outcome=", ".join(f"{n} {what}" for what, n in counts.items()))
        if outcome[1] in ("FAILED", "ERROR"):
            job.note("failed", test=test[0].strip())
    if process.wait():
        job.note("the end of pytest's output", text="".join(lines)[-12_000:])


def others(job: Job, family: str) -> None:
    """Measure Foreword, a plain PyTorch loop and the Trainer at one size, in one process."""
    import plain_pytorch
    import pretrain

    # The size that all share.
    size = {"d_model": 32, "layers": 2, "heads": 2} if job.is_tiny else pretrain.SIZES["base"]
    length, rows = (64, 2) if job.is_tiny else (512, 32)
    settings = {**pretrain.FAMILIES[family], "size": size, "length": length, "batch": rows}
    if job.is_tiny:
        settings["vocab"] = 512
    settings["workers"] = 0
    steps = 2 if job.is_tiny else 12
    # Foreword, then each of the others.
    with released(job.device):
        mine, _ = pretrain.ours(settings, steps, 0.1, 1)
    job.note("next to others", case="Foreword", tokens_per_second=round(mine), ours_is=None)
    has_trainer = all(importlib.util.find_spec(name) for name in ("transformers", "accelerate"))
    sides: dict[str, Callable[[], float]] = {}
    if has_trainer:
        sides["the Trainer, bf16"] = partial(pretrain.theirs, family, settings, steps, 0.1, True)
    else:
        job.note("next to others", case="the Trainer: skipped, not installed")
    compiles = job.device.type == "cuda"
    sides["plain PyTorch"] = partial(
        plain_pytorch.tokens_per_second, family, settings, steps, 0.1, job.device, compiles=compiles
    )
    for case, side in sides.items():
        with released(job.device):
            theirs = side()
        job.note(
            "next to others", case=case, tokens_per_second=round(theirs), ours_is=mine / theirs
        )


def learning(job: Job, name: str) -> None:
    """Train for a short time on source texts of this machine, and record the learning curve."""
    from foreword.train import log

    # The text.
    folder = job.records.parent / f"learning-{name}"
    text = folder / "text"
    text.mkdir(parents=True)
    began = time.monotonic()
    size = write_text(text, TEXT_BYTES >> (7 if job.is_tiny else 0))
    job.note("text", megabytes=size / 1e6, seconds=time.monotonic() - began)
    # The run, by the command line, for half of the time.
    hours = max(2.0, (job.seconds - 15) / 2) / 3600
    settings = ["tokenizer.vocab=8192", "train.evaluations=8", f"train.device={job.device.type}"]
    if job.is_tiny:
        hours = 2 / 3600
        settings += ["model.d_model=32", "model.heads=2", "train.batch=4", "train.heldout_rows=8"]
        settings[0] = "tokenizer.vocab=512"
    command = [sys.executable, "-m", "foreword", "pretrain", name, "--data", str(text)]
    command += ["--out", str(folder / "run"), "--hours", str(hours)]
    command += [word for setting in settings for word in ("--set", setting)]
    process = subprocess.Popen(command, cwd=ROOT)
    shown = 0
    while process.poll() is None:
        time.sleep(0.5)
        shown = show_curve(job, folder / "run", shown, log.read)
    show_curve(job, folder / "run", shown, log.read)
    if process.returncode:
        raise SystemExit(process.returncode)


def show_curve(job: Job, run: Path, shown: int, read: Callable[[Path], list[Any]]) -> int:
    """Record the points that are new, and return how many there are now."""
    if not (run / "metrics.jsonl").exists():
        return shown
    records = [r for r in read(run) if r["kind"] in ("train", "heldout")]
    for number, record in enumerate(records[shown:], shown):
        if record["kind"] == "train" and number % 16 and number > 3:
            continue
        speed = record.get("tokens_per_second")
        job.note(
            "curve", text_is=record["kind"], step=record["step"], seconds=record["seconds"],
            loss=record["loss"], tokens_per_second=None if speed is None else round(speed),
            share_of_products=record.get("share_of_matmul"), skipped=record.get("skipped"),
        )  # fmt: skip
    return len(records)


def write_text(folder: Path, most: int) -> int:
    """Write source files of Python and torch as texts, up to `most` bytes; return their bytes."""
    import sysconfig

    size = 0
    for number, path in enumerate(_sources(Path(sysconfig.get_paths()["stdlib"]))):
        text = path.read_bytes()
        (folder / f"{number}.txt").write_text(text.decode(errors="ignore"), encoding="utf-8")
        size += len(text)
        if size >= most:
            break
    return size


def _sources(library: Path) -> Iterator[Path]:
    for root in (library, Path(torch.__file__).parent):
        for path in sorted(root.rglob("*.py")):
            if "site-packages" not in path.relative_to(root).parts:
                yield path


def profile(job: Job, name: str) -> None:
    """Record the kernels of a few steps by time, and the share of the time the GPU was busy."""
    from torch._C._autograd import DeviceType
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as profiler

    is_cuda = job.device.type == "cuda"
    # Warm up, then profile a few steps: the device alone, since operations of the host are many.
    of = build_setup(job, name, {})
    if is_cuda:
        compile_blocks(of.model)
    optimizer = of.recipe.optimizer.build(of.model)
    loss_fn = partial(of.recipe.objective.loss, of.model)
    batches, steps = of.feed.ahead(0), 3
    try:
        for number in range(WARM_STEPS):
            run_step(of, optimizer, next(batches), loss_fn, number)
        with profiler(activities=[getattr(ProfilerActivity, job.device.type.upper())]) as profiled:
            start = time.perf_counter()
            for number in range(steps):
                run_step(of, optimizer, next(batches), loss_fn, WARM_STEPS + number)
            seconds = time.perf_counter() - start
    finally:
        batches.close()
    # Their time by name, and by what they are for.
    by = "self_device_time_total" if is_cuda else "self_cpu_time_total"
    kind = getattr(DeviceType, job.device.type.upper())
    kernels = [
        (event.key, getattr(event, by) / 1e3 / steps, event.count / steps)
        for event in profiled.key_averages()
        if event.device_type == kind and not event.is_user_annotation
    ]
    busy = sum(ms for _, ms, _ in kernels)
    job.note("profiled", steps=steps, ms=1e3 * seconds / steps, device_busy_ms=busy)
    groups: dict[str, list[float]] = {}
    for kernel, ms, count in kernels:
        sums = groups.setdefault(group_of(kernel), [0.0, 0.0])
        sums[0], sums[1] = sums[0] + ms, sums[1] + count
    for group, (ms, count) in sorted(groups.items(), key=lambda item: -item[1][0]):
        job.note("groups", group=group, ms=ms, share=ms / busy, count=count)
    for kernel, ms, count in sorted(kernels, key=lambda each: -each[1])[:30]:
        job.note("kernels", kernel=kernel[:90], ms=ms, share=ms / busy, count=count)


GROUPS = {
    "attention": "flash|sdpa|fmha|flex",
    "matrix products": r"nvjet|gemm|cutlass|aten::(add)?mm|aten::bmm",
    "optimizer": "adam|multi_tensor",
    "fused by the compiler": "triton",
    "softmax": "softmax",
    "copies": "memcpy|memset|copy",
}


def group_of(kernel: str) -> str:
    """Return what a kernel is for, by its name."""
    return next(
        (group for group, words in GROUPS.items() if re.search(words, kernel, re.IGNORECASE)),
        "other",
    )


def host(job: Job, name: str) -> None:
    """Record what a step of a small model's loop takes, and which functions of the host take it."""
    import cProfile
    import io
    import pstats

    from foreword.objectives._contract import ModelWithLoss
    from foreword.train.budget import Budget
    from foreword.train.loop import Loop
    from foreword.train.step import StepOptions

    is_cuda = job.device.type == "cuda"
    of = build_setup(job, name, {})
    optimizer = of.recipe.optimizer.build(of.model)
    steps = 4 if job.is_tiny else 60

    def train() -> float:
        """Return the milliseconds of a step of the loop, as a run takes it but without hooks."""
        budget = Budget.of(replace(of.recipe.train, steps=steps))
        loop = Loop(
            of.model, ModelWithLoss(of.model, of.recipe.objective), of.feed, optimizer,
            of.recipe.schedule, budget, StepOptions(dtype=of.dtype),
        )  # fmt: skip
        wait(of.device)
        start = time.perf_counter()
        loop.train()
        wait(of.device)
        return 1e3 * (time.perf_counter() - start) / steps

    with released(of.device):
        # As a run takes it, then with a profile of the host, then uncompiled.
        if is_cuda:
            compile_blocks(of.model)
        first = train()
        job.note("loop", compiled=is_cuda, ms_with_warm_up=first, ms=train())
        profiled = cProfile.Profile()
        profiled.enable()
        train()
        profiled.disable()
        text = io.StringIO()
        pstats.Stats(profiled, stream=text).strip_dirs().sort_stats("tottime").print_stats(25)
        job.note(f"functions of the host, {steps} steps", text=text.getvalue().strip())
        if is_cuda:
            with torch.compiler.set_stance("force_eager"):
                first = train()
                job.note("loop", compiled=False, ms_with_warm_up=first, ms=train())


def parallel(job: Job) -> None:
    """Record the differences and the speed of several GPUs, by `benchmarks/parallel.py`."""
    gpus = torch.cuda.device_count() if job.device.type == "cuda" else 2
    if gpus < 2:
        job.note("skipped", why="there is one GPU, and each process requires one")
        return
    command = [sys.executable, str(ROOT / "benchmarks" / "parallel.py"), "--processes", str(gpus)]
    command += ["--kind", "ddp", "fsdp", "--device", job.device.type, "--families", "gpt2"]
    if not job.is_tiny:
        command += ["--set", "model.d_model=1024", "--set", "model.layers=12"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    job.note("processes", text=done.stdout + done.stderr[-2000:])


PARTS: dict[str, Callable[..., None]] = {
    "machine": machine,
    "tests": tests,
    "speed": speed,
    "others": others,
    "learning": learning,
    "profile": profile,
    "host": host,
    "parallel": parallel,
}

if __name__ == "__main__":
    main(sys.argv[1:])
