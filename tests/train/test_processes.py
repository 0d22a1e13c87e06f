"""The same run happens on any number of processes."""

from __future__ import annotations

import queue
import re
import shutil
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from benchmarks.gradients import gradient_difference
from foreword.errors import PeerError, UserError
from foreword.nn.precision import widest
from foreword.process import launched
from foreword.runs.override import override
from foreword.runs.run_folder import open_run
from foreword.runs.setup import resolved
from foreword.settings import config, kinds
from foreword.train import checkpoint, joining, log, processes
from foreword.train.feed import Feed
from foreword.train.loop import dropout_seeds
from foreword.train.step import StepOptions, train_step
from foreword.train.tensor_files import opened
from foreword.train.workers import accumulate_on
from foreword.types import Loss
from tests.train import runs
from tests.train.together import GRADIENT, train_run, train_together

STEPS = 4
FAMILIES = ["encoder", "decoder", "encoder_decoder", "bert", "electra", "xlnet", "transformer_xl"]
FAMILIES += ["lstm", "albert"]
KINDS = [kind for kind in kinds.names("train/parallel") if kind != "auto"]
SHARDED = ["encoder_decoder", "electra", "lstm"]  # by `fsdp` too
Order = tuple[Path, int | str]
ENDED = {2, 3}  # exit statuses: of a fault, and since another process, or the store, had ended
CHAIN = [(1, 3), (4, 6), (2, 9), (1, 0)]  # processes, and the step at which they stop


def begin(
    name: str, text: Path, folder: Path, steps: int = STEPS, kind: str = "auto", saves: int = 1
) -> Path:
    """Write the folder of a run with SGD, whose weights differ as its gradients do."""
    table = runs.table(name, batch=8, micro_batch=2, threads=1, steps=steps, checkpoints=saves)
    table = config.merge(table, {"optimizer": {"kind": "sgd", "lr": 0.1, "momentum": 0.5}})
    made = runs.build(config.merge(table, {"parallel": {"kind": kind}}))
    text = runs.text_for(name, text, folder.parent / f"text-{folder.name}")
    return runs.begin(made, text, folder, [{"kind": "norm"}] if kind != "auto" else [])


@pytest.fixture(scope="module")
def trained(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs of two processes, by family and by kind; `chain`, up to its last resumption."""
    folder = tmp_path_factory.mktemp("processes")
    printed = folder / "printed"
    orders: list[Order] = [(begin(name, text, folder / name), 0) for name in FAMILIES]
    orders += [(begin("decoder", text, folder / kind, kind=kind, saves=2), 0) for kind in KINDS]
    orders += [(begin(one, text, folder / f"fsdp-{one}", kind="fsdp"), 0) for one in SHARDED]
    disk = begin("decoder", text, folder / "disk", kind="fsdp", saves=4)
    memory = begin("decoder", text, folder / "memory", saves=4)
    chain = begin("transformer_xl", text, folder / "chain", 12)
    (_, first), (four, second), (two, third), _ = CHAIN
    runs.die_at(chain, first + 1)  # the last checkpoint is of the start
    override(chain, ["parallel.kind=hsdp"])
    fours: list[Order] = [(chain, second), (memory, "memory")]
    assert set(train_together(four, fours, printed)) <= ENDED, printed.read_text()
    override(chain, ["parallel.kind=fsdp"])
    orders += [(chain, third), (disk, "disk")]
    assert set(train_together(two, orders, printed)) <= ENDED, printed.read_text()
    return folder


def require_same(run: Path, alone: Path) -> None:
    """Check that two runs read the same, and that losses and weights differ by rounding alone."""
    for kind in ("train", "heldout"):
        for one, other in zip(runs.logged(run, kind), runs.logged(alone, kind), strict=True):
            assert one.keys() == other.keys()
            assert one["tokens"] == other["tokens"]
            numbers = [key for key, value in other.items() if isinstance(value, int | float)]
            expected = pytest.approx([other[key] for key in numbers], rel=1e-5)
            assert [one[key] for key in numbers] == expected, (numbers, other["step"])
    folders = [checkpoint.all_in(one)[-1] for one in (run, alone)]
    with opened(folders[0], "weights") as weights, opened(folders[1], "weights") as others:
        assert weights.keys() == others.keys()
        for name, weight in weights.items():
            assert torch.allclose(weight[...], others[name][...], rtol=1e-5, atol=1e-6), name


def require_same_gradient(run: Path, alone: Path) -> None:
    """Check that every element of the first gradient differs by rounding alone."""
    difference, tensor = gradient_difference(alone / GRADIENT, run / GRADIENT)
    assert difference < 1e-6, tensor


def test_two_processes_train_the_run_of_one(text: Path, tmp_path: Path) -> None:
    """The case of the first tier; the cases below share processes that train every family."""
    run, alone = (begin("decoder", text, tmp_path / name) for name in ("run", "alone"))
    assert set(train_together(2, [(run, 0)], tmp_path / "printed")) == {0}
    train_run(alone)
    require_same(run, alone)
    require_same_gradient(run, alone)


@pytest.mark.full
@pytest.mark.parametrize("family", FAMILIES)
def test_two_processes_train_the_run_of_one_with_dropout(
    family: str, trained: Path, text: Path, tmp_path: Path
) -> None:
    alone = begin(family, text, tmp_path / "alone")
    train_run(alone)
    for name in [family] + [f"fsdp-{family}"] * (family in SHARDED):
        require_same(trained / name, alone)
        require_same_gradient(trained / name, alone)


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_trains_the_same_run_with_samples_and_probes(kind: str, trained: Path) -> None:
    run = trained / kind
    require_same(run, trained / "decoder")
    require_same_gradient(run, trained / "decoder")
    shown = [record["samples"] for record in runs.logged(run, "samples")]
    assert shown
    assert shown == [record["samples"] for record in runs.logged(trained / "ddp", "samples")]
    norms, others = (
        [record["norm"] for record in runs.logged(one, "probes")] for one in (run, trained / "ddp")
    )
    assert len(norms) == len(shown) + 1
    assert norms == pytest.approx(others, rel=1e-6)


@pytest.mark.full
def test_a_run_resumed_on_other_numbers_of_processes_is_the_same_run(
    trained: Path, text: Path, tmp_path: Path
) -> None:
    """With memory and momentum: one process, four with shards, two with others, and one again."""
    alone = begin("transformer_xl", text, tmp_path / "alone", 12)
    runs.train_run(alone)
    chain = shutil.copytree(trained / "chain", tmp_path / "chain")
    assert log.read(chain)[-1]["step"] == CHAIN[2][1]
    runs.train_run(chain)
    require_same(chain, alone)


@pytest.mark.full
def test_processes_write_their_shards_and_a_damaged_one_is_named(
    trained: Path, tmp_path: Path
) -> None:
    run = shutil.copytree(trained / "fsdp", tmp_path / "run")
    *_, earlier, last = checkpoint.all_in(run)
    shards = {f"{group}-{n}-of-2.safetensors" for group in ("weights", "optimizer") for n in (1, 2)}
    assert {file.name for file in last.iterdir()} == shards | {"state.json", "manifest.json"}
    whole = open_run(run)
    assert whole.folder == last
    with opened(last, "weights") as stored:
        for name, tensor in checkpoint.stored_tensors(whole.model).items():
            assert torch.equal(tensor, stored[name][...])
    warnings: list[str] = []
    (last / "weights-2-of-2.safetensors").write_bytes(b"")
    assert checkpoint.newest(run, warnings) == earlier
    assert warnings == [
        f"{last}: damaged: weights-2-of-2.safetensors is missing or cut short; the one before it "
        "is used"
    ]
    (last / "weights-2-of-2.safetensors").unlink()
    assert checkpoint.newest(run) == earlier


@pytest.mark.full
@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("disk", "{}/step-0000000[12]: cannot be written: No space left on device"),
        ("memory", "out of memory on cpu; use --set train.micro_batch=1 or less"),
    ],
    ids=["disk", "memory"],
)
def test_a_fault_in_one_process_ends_all_with_its_rank(fault: str, why: str, trained: Path) -> None:
    folder = trained / fault / "checkpoints"
    printed = (trained / "printed").read_text().splitlines()  # and warnings of torch
    pattern = f"rank 1: {why.format(re.escape(str(folder)))}"
    assert sum(bool(re.fullmatch(pattern, line)) for line in printed) == 1
    for left in folder.iterdir():  # nothing half written
        checkpoint.verify(left)


def test_auto_shards_a_model_that_takes_more_than_half_of_the_memory() -> None:
    chosen = [kinds.load("train/parallel", "auto")().choose(needed, 100) for needed in (50, 51)]
    assert [kinds.name_of(kind) for kind in chosen] == ["ddp", "fsdp"]


@pytest.mark.parametrize(("rows", "micro_batch", "workers"), [(8, 2, 1), (12, 6, 2), (7, 3, 1)])
def test_processes_share_the_rows_of_a_step_in_order(
    rows: int, micro_batch: int, workers: int
) -> None:
    def pieces(rank: int, count: int) -> list[list[int]]:
        feed = Feed(*[None] * 4, rows, micro_batch, workers, 1, rank, count)  # type: ignore[arg-type]
        return [piece.tolist() for piece in feed.pieces]

    for count in (1, 2, 4):
        shares = [pieces(rank, count) for rank in range(count)]
        assert len(set(map(len, shares))) == 1  # FSDP gathers weights for all at once
        assert np.concatenate([p for share in shares for p in share]).tolist() == [*range(rows)]
        if rows % micro_batch == 0 and len(pieces(0, 1)) % count == 0:
            assert [piece for share in shares for piece in share] == pieces(0, 1)


def test_what_one_process_says_reaches_one_that_says_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As where one of them finds a damaged file."""

    def gather(parts: list[torch.Tensor], own: torch.Tensor) -> None:
        parts[0].copy_(own)
        parts[1].copy_(torch.tensor(list(b"damaged")))

    monkeypatch.setattr(processes, "count", lambda: 2)
    monkeypatch.setattr(processes, "totals", lambda *_: [0.0, 7.0])
    monkeypatch.setattr(processes.distributed, "all_gather", gather)
    assert processes.texts("") == ["", "damaged"]


def test_dropout_depends_on_the_micro_batch_and_not_on_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alone = dropout_seeds(5, 7, 4)
    for rank in range(2):
        monkeypatch.setattr(processes, "rank", lambda rank=rank: rank)
        assert dropout_seeds(5, 7, 2) == alone[2 * rank : 2 * rank + 2]


def test_gpus_and_machines_have_memories_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "count", lambda: 8)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert processes.memories(torch.device("cuda")) == 8
    assert processes.memories(torch.device("cpu")) == 2
    may = {kind: kinds.load("train/parallel", kind)().may_shard for kind in ["auto", *KINDS]}
    assert may == {"auto": True, "ddp": False, "fsdp": True, "hsdp": True}


def test_more_processes_than_rows_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "count", lambda: 8)
    with pytest.raises(UserError, match=r"train.batch: a step of 4 rows .* 8 processes"):
        resolved(runs.recipe())


def test_threads_in_one_of_several_processes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "count", lambda: 2)
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    with pytest.raises(ValueError, match="one worker in each"):
        train_step(
            model,
            optimizer,
            [],
            lambda batch: Loss(model.weight.sum(), torch.tensor(1.0)),
            [],
            StepOptions(accumulate=accumulate_on(2)),
        )


def test_sums_on_mps_are_in_float32() -> None:
    assert widest(torch.device("mps")) == torch.float32
    assert widest(torch.device("cuda")) == widest(torch.device("cpu")) == torch.float64


def test_what_waits_for_a_silent_process_says_so_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def says(*, is_first: bool) -> None:
        group = SimpleNamespace(enter=lambda: None, is_first_to_fail=lambda: is_first)
        monkeypatch.setattr(joining, "_Group", lambda: group)
        with joining.joined():
            raise RuntimeError("[gloo/transport/tcp/buffer.cc:84] Timed out waiting 1800000ms")

    monkeypatch.setattr(joining, "is_launched", lambda: True)
    with pytest.raises(UserError, match="no sign of life for 30 minutes"):
        says(is_first=True)
    with pytest.raises(PeerError):
        says(is_first=False)


def test_a_process_ends_when_its_launcher_has(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    statuses: queue.SimpleQueue[int] = queue.SimpleQueue()
    parents = iter([7, 7, 1])
    monkeypatch.setattr(launched.os, "getppid", lambda: next(parents))
    monkeypatch.setattr(launched.os, "_exit", statuses.put)
    monkeypatch.setattr(launched, "_ending", threading.Lock())
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "one")
    monkeypatch.setenv("LOCAL_RANK", "0")
    launched.watch_launcher(interval=0.001)
    assert statuses.get(timeout=10) == 2
    assert capsys.readouterr().err == "foreword: the launcher of the processes is gone\n"
