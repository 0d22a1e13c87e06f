"""The plug-ins in `docs/examples/` keep the contracts of their folders."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from torch import nn

from foreword import kinds, plugins
from foreword.data.read_documents import read_documents
from foreword.data.rng import RowRng
from foreword.data.text_files import ReadCounts, ReadSettings
from foreword.objectives.masked import Masked
from foreword.testing import check_objective, check_optimizer, check_position, check_schedule
from foreword.tune.network import Network
from foreword.types import Example, Rows, Vocab

from .test_plugins import EXAMPLES

CHECKS = {
    "objectives/skip_causal": check_objective,
    "nn/positions/recency": check_position,
    "train/optimizers/lion": check_optimizer,
    "train/schedules/quadratic": check_schedule,
}


@pytest.fixture(autouse=True)
def examples() -> Iterator[None]:
    with plugins.plugins([EXAMPLES]):
        yield


@pytest.mark.parametrize("kind", CHECKS)
def test_examples_pass_the_contract_checks(kind: str) -> None:
    folder, _, name = kind.rpartition("/")
    CHECKS[kind](kinds.load(folder, name)())  # type: ignore[operator]


def test_a_csv_file_is_read_by_the_example_reader(tmp_path: Path) -> None:
    file = tmp_path / "text.csv"
    file.write_text('id,text\n1,"a, b"\n2,c\n', encoding="utf-8")
    found = read_documents([file], ReadSettings(), ReadCounts())
    assert [document.text for document in found] == ["a, b", "c"]


def test_biases_trains_the_head_and_the_biases_of_the_backbone() -> None:
    network = Network(nn.Sequential(nn.Linear(2, 3)), nn.Linear(3, 1))  # type: ignore[arg-type]
    kinds.load("tune/strategies", "biases")().prepare(network)
    trained = {name for name, p in network.named_parameters() if p.requires_grad}
    assert trained == {"backbone.0.bias", "head.weight", "head.bias"}


def test_every_path_of_the_architecture_page_exists() -> None:
    text = (EXAMPLES.parent / "architecture.md").read_text(encoding="utf-8")
    named = re.findall(r"`(foreword/[\w/.]+)`", text)
    linked = re.findall(r"\]\((examples/[\w/.]*)\)", text)
    assert len(named) > 30 and len(linked) > 5
    missing = [path for path in named if not (EXAMPLES.parents[1] / path).exists()]
    missing += [path for path in linked if not (EXAMPLES.parent / path).exists()]
    assert not missing


def test_the_architecture_page_shows_every_example() -> None:
    text = (EXAMPLES.parent / "architecture.md").read_text(encoding="utf-8")
    for file in EXAMPLES.rglob("*.py"):
        assert f"(examples/{file.relative_to(EXAMPLES).as_posix()})" in text


class Rising:
    """A schedule that breaks its promise."""

    def factor(self, progress: float, step: int, total: float) -> float:
        return 2 * progress


def test_contract_checks_find_a_broken_promise() -> None:
    with pytest.raises(AssertionError, match="the factor falls to 0"):
        check_schedule(Rising())


def test_contract_checks_find_an_objective_that_shows_its_targets() -> None:
    @dataclass(frozen=True)
    class Leaky(Masked):
        """Masked tokens that are left as they are."""

        def corrupt(self, rows: Rows, rng: RowRng, vocab: Vocab) -> Example:
            example = super().corrupt(rows, rng, vocab)
            return replace(example, source=replace(example.source, ids=rows.ids))

    with pytest.raises(AssertionError):
        check_objective(Leaky())
