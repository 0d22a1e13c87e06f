"""One thread each: tests run side by side, and sums then have one order."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from itertools import chain
from pathlib import Path
from types import SimpleNamespace

os.environ["OMP_NUM_THREADS"] = "1"  # for the processes that tests start
# They find `tests` even after the command line told children to leave out the current folder.
os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
)

import pytest

from tests import shelf
from tests.covering import mark_the_rest

# Modules are compiled once, and not by each worker and each process that tests start.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
MEMORY = Path("/dev/shm")
if MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > 4e9:
    # Tests write thousands of small files, which takes a disk most of their time.
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))
IMPORTED_LATE = (
    "foreword.comparison.run",
    "foreword.cli.main",
    "scipy.stats",
    "sklearn.linear_model",
    "torch._dynamo",
    "transformers",
)

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in the background of a script
    signal.signal(signal.SIGINT, signal.default_int_handler)  # tests and their processes hear it


def pytest_configure(config: pytest.Config) -> None:
    """Make the shelf of runs, which the workers of a session share."""
    if not hasattr(config, "workerinput"):
        root = os.environ.get("PYTEST_DEBUG_TEMPROOT")
        os.environ[shelf.FOLDER] = tempfile.mkdtemp(prefix="shelf-", dir=root)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the shelf."""
    if not hasattr(config, "workerinput"):
        shutil.rmtree(os.environ[shelf.FOLDER], ignore_errors=True)


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses among marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave most cases of large products to the second tier."""
    mark_the_rest(items)


def pytest_collection_finish() -> None:
    """Leave what is imported out of garbage collection, which would go through it each time."""
    import torch  # not where pytest only gathers what other processes have tested

    torch.set_num_threads(1)
    if "PYTEST_XDIST_WORKER" in os.environ:  # runs tests of all rooms: also what they import late
        for name in IMPORTED_LATE:
            with suppress(ImportError):
                import_module(name)
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)  # tests make much that is soon freed without the collector


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how many seconds each folder of tests took, and each file outside of one."""
    seconds: Counter[str] = Counter()
    for report in chain.from_iterable(terminalreporter.stats.values()):
        if isinstance(report, pytest.TestReport):
            seconds["/".join(Path(report.nodeid.split("::")[0]).parts[:2])] += report.duration
    shown = (f"{name} {spent:.0f}" for name, spent in seconds.most_common() if spent >= 1)
    terminalreporter.write_line(f"seconds by folder: {', '.join(shown)}")


@pytest.fixture(scope="session", autouse=True)
def _unmeasured() -> Iterator[None]:
    """Skip the measurement of the machine's speed, which takes longer than most runs here.

    An estimate is measured on few steps, beside garbage that nobody collected for it;
    `tests/planning/test_memory.py` tells how near it comes.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("foreword.runs.hooks.matmul_flops_per_second", lambda *_: 1e9)
        patch.setattr("foreword.planning.estimate.TIMED_SECONDS", 0.0)
        patch.setattr("foreword.planning.memory.STEPS", 1)
        patch.setattr("foreword.planning.memory.ROUNDS", 1)
        patch.setattr("foreword.planning.resident.gc", SimpleNamespace(collect=int))
        yield


@pytest.fixture(scope="session", autouse=True)
def _unsynchronised() -> Iterator[None]:
    """Wait for no disk: nobody cuts the power while these files are needed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda file: None)
        yield
