"""The plug-ins in `docs/examples/` keep the contracts of their folders."""

from __future__ import annotations

import re
import runpy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from foreword import testing
from foreword.data.read_documents import read_documents
from foreword.data.rng import RowRng
from foreword.data.text_files import ReadCounts, ReadSettings
from foreword.disk import stored
from foreword.layouts._contract import Layout
from foreword.layouts.encoder import Encoder
from foreword.nn.masks import FullMask
from foreword.objectives.masked import Masked
from foreword.runs import run as running
from foreword.runs.corpus import run_shards
from foreword.runs.run_folder import open_run
from foreword.settings import kinds, plugins
from foreword.testing import (
    check_attention,
    check_layout,
    check_objective,
    check_optimizer,
    check_packing,
    check_position,
    check_probe,
    check_schedule,
    check_strategy,
    check_task,
    check_tokenizer,
    check_tracker,
)
from foreword.tuning.network import HeadNetwork, Network
from foreword.tuning.strategies.full import Full
from foreword.types import Batch, Example, Rows, Vocab
from tests.train import runs

from .test_plugins import EXAMPLES

CHECKS: dict[str, Callable[..., None]] = {
    "data/packing/dependency_depth": check_packing,
    "data/packing/one_document": check_packing,
    "layouts/local_encoder": check_layout,
    "nn/attentions/dilated": check_attention,
    "nn/positions/recency": check_position,
    "nn/positions/structural": check_position,
    "objectives/skip_causal": check_objective,
    "probes/embedding_norms": check_probe,
    "text/tokenizers/utf8_bytes": check_tokenizer,
    "trackers/csv_file": check_tracker,
    "train/optimizers/lion": check_optimizer,
    "train/schedules/quadratic": check_schedule,
    "tuning/strategies/biases": check_strategy,
    "tuning/tasks/hinge": check_task,
}
OTHERS = {"verbs/hello", "data/readers/csv_lines", "probes/plurals"}  # tested one by one


@pytest.fixture(autouse=True)
def examples() -> Iterator[None]:
    with plugins.plugins([EXAMPLES]):
        yield


@pytest.mark.product(few=6)
@pytest.mark.parametrize("kind", CHECKS)
def test_examples_pass_the_contract_checks(kind: str) -> None:
    folder, _, name = kind.rpartition("/")
    CHECKS[kind](kinds.load(folder, name)())


def test_every_folder_of_kinds_with_a_check_has_an_example() -> None:
    found = [*EXAMPLES.rglob("*.py"), *EXAMPLES.rglob("*.toml")]
    files = [file.relative_to(EXAMPLES).with_suffix("") for file in found]
    assert {file.as_posix() for file in files} == CHECKS.keys() | OTHERS


def test_a_run_uses_many_examples_at_once(tmp_path: Path) -> None:
    table = runs.table("encoder", steps=2)
    table["model"] |= {"attention": {"kind": "dilated"}, "position": {"kind": "recency"}}
    table |= {
        "layout": {"kind": "local_encoder", "reach": 4},
        "packing": {"kind": "one_document", "length": 16},
        "tokenizer": {"kind": "utf8_bytes"},
        "optimizer": {"kind": "lion"},
        "schedule": {"kind": "quadratic"},
    }
    run = runs.begin(runs.build(table), runs.write_text(tmp_path / "text"), tmp_path / "run")
    assert runs.train_run(run)
    (noted,) = stored.read(run / "run.json")["plugins"]
    assert len(noted["kinds"]) == 7


def test_depths_in_a_tree_reach_attention(tmp_path: Path) -> None:
    # Sentences of four words, half of which have a tree: the third word depends on the fourth.
    sentences = [f"{who} {verb} old books" for who in ("They", "We") for verb in ("read", "sell")]
    others = [f"Nobody {verb} my books" for verb in ("reads", "sells", "keeps", "has")]
    trees, text = tmp_path / "trees.conllu", tmp_path / "text.txt"
    lines = [
        f"{n}\t{word}\t_\t_\t_\t_\t{head}\t_\t_\t_" + "\n" * (1 + (n == 4))
        for sentence in sentences
        for n, (word, head) in enumerate(zip(sentence.split(), (2, 0, 4, 2), strict=True), 1)
    ]
    trees.write_text("".join(lines), encoding="utf-8")
    text.write_text("\n".join([*sentences, *others] * 20), encoding="utf-8")
    table = runs.table("encoder", steps=2)
    table |= {"packing": {"kind": "dependency_depth", "length": 24, "trees": str(trees)}}
    table |= {"read": {"documents": "line"}, "tokenizer": {"kind": "utf8_bytes"}}
    table["model"] |= {"position": {"kind": "structural"}, "segments": 0}
    run = runs.begin(runs.build(table), text, tmp_path / "run")
    assert runs.train_run(run)
    trained = open_run(run, "cpu")
    packed = trained.recipe.packing.open(run_shards(run).train, trained.vocab, 1, 4)
    rows = packed.rows(np.arange(packed.rows_per_epoch))
    assert rows.segments is not None
    known = rows.segments.sum(1) > 0
    assert 0 < known.sum() < len(known)
    # Each letter has the depth of its word.
    tokens = rows.ids[known][0].tolist()
    first = b"".join(trained.vocab.spellings[token] for token in tokens).partition(b"</s>")[0]
    depths = [str(depth) for depth in rows.segments[known][0][: len(first)]]
    seen_depths = "".join(d for d, c in zip(depths, first.decode(), strict=True) if c != " ")
    assert re.fullmatch(r"1+0{4}2{3}1{5}", seen_depths)
    example = trained.recipe.objective.corrupt(rows, RowRng(1, rows.numbers), trained.vocab)
    batch = trained.recipe.layout.arrange(example, trained.vocab).to("cpu")
    with torch.no_grad():
        seen = trained.model.backbone(batch).states
        blind = trained.model.backbone(replace(batch, segments=None)).states
    differs = (seen != blind).any(-1).any(-1).numpy()
    assert (differs == known).all()


def test_the_hook_of_the_architecture_page_is_called_between_steps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (EXAMPLES.parent / "architecture.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.S)
    file = tmp_path / "hook.py"
    file.write_text(next(block for block in blocks if "(Hook)" in block), encoding="utf-8")
    hook = runpy.run_path(str(file))["ParameterNorm"]()
    made = runs.recipe("decoder", steps=4)
    run = runs.begin(made, runs.write_text(tmp_path / "text"), tmp_path / "run")
    assert running.train_run(run, runs.Quiet(), hooks=[hook])
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [int(step) for step, _ in lines] == [1, 2, 3, 4]
    assert all(float(norm) > 0 for _, norm in lines)


def test_a_csv_file_is_read_by_the_example_reader(tmp_path: Path) -> None:
    file = tmp_path / "text.csv"
    file.write_text('id,text\n1,"a, b"\n2,"c\nd"\n3,e\n', encoding="utf-8")
    documents = read_documents([file], ReadSettings(), ReadCounts())
    assert [document.text for document in documents] == ["a, b", "c\nd", "e"]


def test_biases_trains_the_head_and_the_biases_of_the_backbone() -> None:
    network = HeadNetwork(nn.Sequential(nn.Linear(2, 3)), nn.Linear(3, 1))  # type: ignore[arg-type]
    kinds.load("tuning/strategies", "biases")().prepare(network, 1)
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


def test_the_check_of_the_architecture_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (EXAMPLES.parent / "architecture.md").read_text(encoding="utf-8")
    block = next(b for b in re.findall(r"```python\n(.*?)```", text, re.S) if "check_" in b)
    assert all(name in text for name in testing.__all__ if name.startswith("check_"))
    monkeypatch.chdir(EXAMPLES.parents[1])
    file = tmp_path / "check.py"
    file.write_text(block, encoding="utf-8")
    runpy.run_path(str(file))


@dataclass(frozen=True)
class Mixing(Layout):
    """A layout whose documents see each other."""

    def arrange(self, example: Example, vocab: Vocab) -> Batch:
        return replace(Encoder().arrange(example, vocab), mask=FullMask())


@dataclass(frozen=True)
class Idle(Full):
    """A strategy that leaves everything as it finds it."""

    def prepare(self, network: Network, seed: int) -> None:
        """Do nothing."""


def test_broken_promises_of_layouts_and_strategies_are_found() -> None:
    with pytest.raises(AssertionError, match="not close"):
        check_layout(Mixing())
    with pytest.raises(AssertionError, match="the head is not trained"):
        check_strategy(Idle())
