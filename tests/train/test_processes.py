"""A step over several processes equals that of one: sums and counts are added, divided once."""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path

import pytest
import torch

from foreword.nn.precision import widest
from foreword.runs.corpus import corpus
from foreword.runs.setup import TrainingSetup, set_up_training
from foreword.train.step import train_step
from foreword.train.workers import accumulate_on
from foreword.types import Loss
from tests import forking
from tests.train import runs

FAMILIES = ["encoder", "decoder", "encoder_decoder", "bert"]
MICRO_BATCHES = 4  # of a step, over all processes


def set_up(family: str, text: Path, folder: Path) -> TrainingSetup:
    made = runs.recipe(family, batch=8, micro_batch=8 // MICRO_BATCHES, workers=1)
    text = runs.text_for(family, text, folder.parent / f"text-{folder.name}")
    tokenizer, prepared = corpus(made, runs.begin(made, text, folder), runs.stage)
    return set_up_training(made, tokenizer, prepared)


def step(setup: TrainingSetup, rank: int, processes: int) -> dict[str, object]:
    """What a step on every `processes`-th row, from `rank`, gives; weights as a checksum."""
    setup.model.eval()  # dropout draws per micro-batch, and these are cut in other ways
    loss_fn: torch.nn.Module = setup.loss_fn
    if processes > 1:
        loss_fn = torch.nn.parallel.DistributedDataParallel(loss_fn)
    numbers = torch.arange(setup.recipe.rows_per_step).numpy()[rank::processes]
    batches = setup.feed.batches(numbers)
    assert len(batches) == MICRO_BATCHES // processes
    optimizer = torch.optim.SGD(setup.model.parameters(), lr=1.0)
    result = train_step(
        setup.model,
        optimizer,
        batches,
        loss_fn,
        clip=0.5,
        dtype=torch.float32,
        seeds=range(len(batches)),
    )
    total = sum(float(p.detach().double().abs().sum()) for p in setup.model.parameters())
    return {"loss": result.loss, "count": result.count, "norm": result.grad_norm, "sum": total}


@pytest.fixture(scope="module")
def of_each_process(
    text: Path, tmp_path_factory: pytest.TempPathFactory
) -> list[dict[str, dict[str, object]]]:
    """What two processes compute together, by process and family."""
    folder = tmp_path_factory.mktemp("processes")
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = str(listener.getsockname()[1])
    known = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2"}
    outputs = [folder / f"{rank}.json" for rank in range(2)]
    commands = [
        forking.start_into(
            [str(text), str(folder), str(output)],
            folder / "printed",
            environment={**known, "RANK": str(rank)},
            module="tests.train.test_processes",
        )
        for rank, output in enumerate(outputs)
    ]
    assert [command.wait() for command in commands] == [0, 0], (folder / "printed").read_text()
    return [json.loads(output.read_text()) for output in outputs]


@pytest.mark.parametrize("family", FAMILIES)
def test_two_processes_take_the_step_of_one(
    family: str, of_each_process: list[dict[str, dict[str, object]]], text: Path, tmp_path: Path
) -> None:
    """Each in two micro-batches; BERT's terms have other counts in each process."""
    alone = step(set_up(family, text, tmp_path / "alone"), 0, 1)
    for by_family in of_each_process:
        assert by_family[family] == pytest.approx(alone, rel=1e-5)


def test_threads_in_one_of_several_processes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foreword.train.step._processes", lambda: 2)
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    with pytest.raises(ValueError, match="one worker in each"):
        train_step(
            model,
            optimizer,
            [],
            lambda batch: Loss(model.weight.sum(), torch.tensor(1.0)),
            clip=0.0,
            dtype=torch.float32,
            seeds=[],
            accumulate=accumulate_on(2),
        )


def test_sums_on_mps_are_in_float32() -> None:
    assert widest(torch.device("mps")) == torch.float32
    assert widest(torch.device("cuda")) == widest(torch.device("cpu")) == torch.float64


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    number = torch.distributed.get_rank()
    text, folder = Path(sys.argv[1]), Path(sys.argv[2]) / str(number)
    setups = {family: set_up(family, text, folder / family) for family in FAMILIES}
    results = {family: step(own, number, 2) for family, own in setups.items()}
    Path(sys.argv[3]).write_text(json.dumps(results))
    torch.distributed.destroy_process_group()
