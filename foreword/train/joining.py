"""How a process joins those that `torchrun` started with it, and how all end if one does.

PyTorch's launcher starts the processes, ends all if one ends, and hosts the store through which
they find each other. What waits for a process that stands still, or whose machine is gone, fails
after `SILENCE`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
from torch import distributed
from torch.distributed.distributed_c10d import PrefixStore, Store

from foreword.errors import PeerError, UserError
from foreword.train import processes

SILENCE = timedelta(minutes=30)  # in which a process takes part again, whatever it does alone
LEAVING = 5.0  # seconds in which the launcher sees who ended first, and ends the others
FAILED = "failed"  # what the first process that fails notes
MEETING = timedelta(minutes=5)  # in which all have to start
STALE = "start all by torchrun, or unset RANK and WORLD_SIZE"
FOREVER = timedelta(days=30)  # what the first process does ahead, such as reading text


def is_launched() -> bool:
    """Return whether a launcher started this process as one of several."""
    return "RANK" in os.environ and launched_count() > 1


def launched_rank() -> int:
    """Return the number of this process among those that the launcher started, from 0."""
    return _number("RANK", 0) if is_launched() else 0


def launched_count() -> int:
    """Return the number of processes that the launcher started."""
    return _number("WORLD_SIZE", 1)


def _number(name: str, default: int) -> int:
    """Return a number that the launcher put into the environment.

    Raises:
        UserError: it is none.
    """
    value = os.environ.get(name, str(default))
    if not value.isdecimal():
        raise UserError(f"{name}={value}: torchrun sets this variable to a number; {STALE}")
    return int(value)


def is_restart() -> bool:
    """Return whether the launcher starts the processes again after a failure."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0


class _Group:
    """This process's place among the others.

    Attributes:
        store: what the processes tell each other outside of training.
        ahead: where the first process notes what it has done ahead of the others.
        turns: how many times it has.
        exchanges: how many places for notes the processes have had.
    """

    def __init__(self) -> None:
        from torch.distributed.rendezvous import rendezvous

        rank, count = launched_rank(), launched_count()
        if missing := [name for name in ("MASTER_ADDR", "MASTER_PORT") if name not in os.environ]:
            raise UserError(
                f"RANK and WORLD_SIZE say that this is process {rank} of {count}, but there is no "
                f"{missing[0]}; {STALE}"
            )
        try:
            store, rank, count = next(rendezvous("env://", timeout=MEETING))
        except distributed.DistError as error:
            where = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
            raise UserError(
                f"process {rank} of {count} does not meet the others at {where}; {STALE}"
            ) from error
        store.set_timeout(FOREVER)
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        self._store, self._prefix = store, f"foreword/{attempt}"
        self.store = PrefixStore(self._prefix, store)
        self.ahead = Notes(self.store, "turn")
        self.turns = self.exchanges = 0
        self._is_first_to_fail: bool | None = None
        self._options = {"store": PrefixStore(f"torch/{attempt}", store), "rank": rank}
        self._options |= {"world_size": count, "timeout": SILENCE}

    def enter(self) -> None:
        """Connect to the others.

        Raises:
            UserError: there is no GPU for this process.
        """
        distributed.init_process_group(_backend(), **self._options)

    def is_first_to_fail(self) -> bool:
        """Return whether this process was the first to fail, and is to say why."""
        if self._is_first_to_fail is None:
            self._is_first_to_fail = _claim(self.store)
        return self._is_first_to_fail

    def connection(self) -> Store:
        """Return the store for another thread, each of which needs a connection of its own."""
        return PrefixStore(self._prefix, self._store.clone())

    def leave(self) -> None:
        """Wait for the others and part from them."""
        distributed.barrier()  # the store may go with the first process
        distributed.destroy_process_group()


_group: _Group | None = None


def _backend() -> str:
    """Return NCCL for a GPU of this process's own, and Gloo for all else."""
    if not torch.cuda.is_available():
        return "gloo"
    local, there = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
    if local >= there:
        raise UserError(
            f"process {local} has no GPU: there are {there} and each process requires one; start "
            f"at most {there}"
        )
    torch.cuda.set_device(local)
    return "cpu:gloo,cuda:nccl"


@contextmanager
def joined() -> Iterator[None]:
    """Join the processes that were started with this one; without others, do nothing.

    Raises:
        PeerError: another process ended, or says the same as this one would.
    """
    global _group
    if _group is not None or not is_launched():
        yield
        return
    _group = _Group()
    try:
        _group.enter()
        yield
        _group.leave()
    except (Exception, KeyboardInterrupt) as error:
        if _is_silence(error) and _group.is_first_to_fail():
            raise UserError(
                f"another process gave no sign of life for {SILENCE.seconds // 60} minutes: it "
                "was stopped, or its machine is gone; 'foreword resume' continues"
            ) from error
        if isinstance(error, KeyboardInterrupt) or comes_from_others(error):
            raise PeerError("another process of this training ended") from error
        if not _group.is_first_to_fail():
            raise PeerError(f"another process said why first; here: {error}") from error
        if processes.rank() and isinstance(error, UserError):
            error.args = (f"rank {processes.rank()}: {error}",)
        raise
    finally:
        _group = None


def require_one_process() -> None:
    """Check that this process trains alone.

    Raises:
        UserError: it does not.
    """
    if processes.count() > 1:
        raise UserError(
            "this model learns from the whole text at once, in one process; start it without others"
        )


def wait_for_launcher() -> None:
    """Give the launcher time to see which process ended first, and to end this one."""
    time.sleep(LEAVING)


def fail_first() -> None:
    """Claim the failure that this process is about to raise, before others see its traces."""
    if _group is not None:
        _group.is_first_to_fail()


def comes_from_others(error: BaseException) -> bool:
    """Return whether an error says that another process cannot be reached."""
    if isinstance(error, distributed.DistError):
        return True
    return isinstance(error, RuntimeError) and "gloo" in str(error).lower()


def _is_silence(error: BaseException) -> bool:
    """Return whether an error says that another process did not answer in time."""
    return comes_from_others(error) and "timed out" in str(error).lower()


def _claim(store: Store) -> bool:
    """Return whether this process is the first to fail, which says why."""
    try:
        return bool(store.add(FAILED, 1) == 1)
    except RuntimeError:  # the launcher is gone
        return True


@contextmanager
def first_alone() -> Iterator[None]:
    """Let the first process run the block before the others do."""
    if _group is None:
        yield
        return
    _group.turns += 1
    if not processes.is_first():
        _group.ahead.read(f"{_group.turns}", lambda: None)
    yield
    if processes.is_first():
        _group.ahead.post(f"{_group.turns}")


class Notes:
    """Where threads of the processes leave notes for each other, while training goes on.

    Args:
        store: this thread's connection.
        name: the same in all processes.
    """

    def __init__(self, store: Store, name: str) -> None:
        self._store, self._name = store, name

    def post(self, note: str, text: str = "") -> None:
        """Leave a note."""
        self._store.set(f"{self._name}/{note}", text)

    def read(self, note: str, goes_on: Callable[[], None]) -> str:
        """Wait for a note, and return its text.

        Args:
            note: its name.
            goes_on: called while it waits; it may raise an error to end the wait.

        Raises:
            PeerError: another process failed meanwhile.
        """
        key = f"{self._name}/{note}"
        while not self._store.check([key]):
            goes_on()
            if self._store.check([FAILED]):
                raise PeerError("another process of this training ended")
            time.sleep(0.05)
        text: bytes = self._store.get(key)
        return text.decode()

    def remove(self, note: str) -> None:
        """Remove a note that all have read."""
        self._store.delete_key(f"{self._name}/{note}")


def new_notes() -> Notes | None:
    """Return a new place for notes, for which all processes ask together; None for one alone."""
    if _group is None:
        return None
    _group.exchanges += 1
    return Notes(_group.connection(), f"notes/{_group.exchanges}")
