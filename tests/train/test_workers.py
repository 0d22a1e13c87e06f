"""Worker threads: order of results, number at once, cores and seeds of each."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import torch

from foreword.nn.dropout import dropout, seeded
from foreword.train.workers import MAX_WORKERS, MIN_TOKENS, choose_workers, map_in_threads
from tests import forking

CPU = torch.device("cpu")


def test_results_are_in_the_order_of_the_items() -> None:
    began = threading.Event()

    def work(n: int) -> int:
        if n == 0:
            assert began.wait(20)  # the second is done before the first
        began.set()
        return n * n

    assert map_in_threads(work, range(5), 2) == [0, 1, 4, 9, 16]


def test_at_most_one_item_for_each_worker_runs_at_once() -> None:
    barrier, running, most = threading.Barrier(3), [0], [0]
    lock = threading.Lock()

    def work(_: int) -> None:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        barrier.wait(20)
        with lock:
            running[0] -= 1

    map_in_threads(work, range(6), 3)
    assert most == [3]


@pytest.mark.parametrize(("items", "workers"), [(1, 2), (3, 1)])
def test_one_worker_or_one_item_runs_in_the_calling_thread(items: int, workers: int) -> None:
    here = threading.get_ident()
    made = map_in_threads(lambda _: threading.get_ident(), range(items), workers)
    assert made == [here] * items


def test_an_error_in_a_thread_is_raised_by_the_caller() -> None:
    def work(n: int) -> None:
        raise ValueError(f"item {n}")

    with pytest.raises(ValueError, match="item 0"):
        map_in_threads(work, range(2), 2)


CORES = """
import threading, torch
from foreword.train.workers import map_in_threads
a = torch.ones(400, 400)
threads = map_in_threads(lambda _: (a @ a, torch.get_num_threads())[1], range(2), 2)
later = []
thread = threading.Thread(target=lambda: later.append(torch.get_num_threads()))
thread.start(); thread.join()
print(threads, later, torch.get_num_threads())
"""


def test_workers_share_the_cores_and_change_no_other_thread(tmp_path: Path) -> None:
    program, output = tmp_path / "cores.py", tmp_path / "output"
    program.write_text("import torch; torch.set_num_threads(4)" + CORES)
    assert forking.run([], output, module=str(program)) == 0
    assert output.read_text().strip() == "[2, 2] [4] 4"


def test_each_thread_draws_dropout_from_its_own_seed() -> None:
    x = torch.ones(1000)

    def draw(seed: int) -> list[torch.Tensor]:
        with seeded(seed, CPU):
            first = dropout(x, 0.5)
            barrier.wait(20)  # both have drawn once before either draws again
            return [first, dropout(x, 0.5)]

    barrier = threading.Barrier(2)
    both = map_in_threads(draw, [7, 8], 2)
    barrier = threading.Barrier(1)
    for masks, seed in zip(both, (7, 8), strict=True):
        assert all(map(torch.equal, masks, draw(seed)))
    assert not torch.equal(both[0][0], both[1][0])
    assert not torch.equal(both[0][0], both[0][1])


def test_the_number_of_workers_follows_cores_and_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    for cores, rows, length, expected in (
        (1, 64, 128, 1),
        (2, 64, 128, 2),
        (16, 64, 128, MAX_WORKERS),
        (16, 2, MIN_TOKENS - 1, 1),
        (16, 2, MIN_TOKENS, 2),
        (16, 1, 8 * MIN_TOKENS, 1),
    ):
        monkeypatch.setattr(torch, "get_num_threads", lambda cores=cores: cores)
        assert choose_workers(0, CPU, rows, length) == expected
    assert choose_workers(5, CPU, 8, 16) == 5
    assert choose_workers(5, CPU, 3, 16) == 3
    assert choose_workers(5, torch.device("cuda"), 8, 16) == 1
