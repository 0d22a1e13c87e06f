"""Fine-tuning of an imported GPT-1, whose tokenizer has no special tokens for a template."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from foreword.cli.main import run as command
from foreword.interop import importing
from foreword.runs.run_folder import open_run
from foreword.runs.trained_model import TrainedModel
from foreword.tables.examples import Labelled
from foreword.tuning.settings import TuneSettings
from foreword.tuning.strategies.full import Full
from foreword.tuning.tasks.classify import Classify
from foreword.tuning.tune import variants
from foreword.tuning.tune_result import TuneResult, save_network
from foreword.tuning.tuned_model import load_tuned
from tests.tuning.runs import tune

from . import theirs

pytest.importorskip("transformers")

ADDED = ["<s>", "[SEP]", "[CLS]"]
PAIRS = [
    Labelled("w3 w9", "yes", "w4"),
    Labelled("w3", "no", "w9 w4"),  # the same words: only what stands between tells
]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> TrainedModel:
    folder = tmp_path_factory.mktemp("gpt")
    theirs.write("openai_gpt", folder / "theirs")
    importing.save(importing.read(folder / "theirs"), folder / "run")
    return open_run(folder / "run", "cpu")


@pytest.fixture(scope="module")
def result(trained: TrainedModel) -> TuneResult:
    settings = TuneSettings(strategy=Full(lr=3e-3), seeds=1, epochs=4, precision="fp32")
    return tune(trained, Classify(), PAIRS * 8, PAIRS, variants(settings))


@pytest.mark.full
def test_start_delimiter_and_extract_are_new_tokens(
    trained: TrainedModel, result: TuneResult
) -> None:
    tokenizer, template = result.tokenizer, result.template
    new = [tokenizer.vocab.id(name) for name in ADDED]
    assert sorted(new) == [theirs.SIZE, theirs.SIZE + 1, theirs.SIZE + 2]
    assert [*template.prefix, *template.separator, *template.suffix] == new
    assert template.fresh == tuple(sorted(new))
    filled = template.apply(tokenizer.encode("w3 w9"), tokenizer.encode("w4"))
    names = [tokenizer.token(i) for i in filled.ids]
    assert names == ["<s>", "w3", "w9", "[SEP]", "w4", "[CLS]"]
    assert template.pooled_positions(filled).tolist() == [5]
    text = "w3 [SEP] <s> w4"  # in a text they are words like any others
    assert tokenizer.encode(text).tolist() == trained.tokenizer.encode(text).tolist()


@pytest.mark.full
def test_new_tokens_grow_the_tuned_embedding_alone(
    trained: TrainedModel, result: TuneResult
) -> None:
    assert trained.model.backbone.embedding.token.num_embeddings == theirs.SIZE
    assert "[SEP]" not in trained.vocab.special
    assert result.network.backbone.embedding.token.num_embeddings == theirs.SIZE + len(ADDED)
    assert result.rows[0]["accuracy"] == 1.0
    assert {row.start for row in result.rows} >= {"pretrained", "from scratch"}


def test_frozen_keeps_all_but_the_rows_of_new_tokens(trained: TrainedModel) -> None:
    frozen = variants(TuneSettings(seeds=1, epochs=1))[1]
    backbone = tune(trained, Classify(), PAIRS, PAIRS, frozen).network.backbone
    before = dict(trained.model.backbone.named_parameters())
    for name, after in backbone.named_parameters():
        assert torch.equal(after[: len(before[name])], before[name]), name
    new = backbone.embedding.token.weight[theirs.SIZE :]
    assert torch.pdist(new).min() > 0  # they can be told from one another
    assert new.std() < 3 * trained.recipe.model.init_std


def test_a_tuned_run_keeps_its_new_tokens(result: TuneResult, tmp_path: Path) -> None:
    save_network(result, tmp_path / "tuned")
    loaded = load_tuned(tmp_path / "tuned", "cpu")
    assert loaded.template == result.template
    labels, _ = loaded.predict([e.text for e in PAIRS], [e.pair or "" for e in PAIRS])
    assert labels == [example.label for example in PAIRS]


def test_an_imported_gpt1_is_tuned_from_the_command_line(
    trained: TrainedModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [f"{e.text}\t{e.pair}\t{e.label}" for e in PAIRS * 4]
    file = tmp_path / "pairs.tsv"
    file.write_text("\n".join(["text\tother\tlabel", *rows]) + "\n")
    words = [
        "tune",
        "--strategy=full",
        str(trained.run),
        "--train",
        str(file),
        "--dev",
        str(file),
        "--pair",
        "other",
    ]
    words += ["--seeds", "1", "--epochs", "1", "--device", "cpu", "--out", str(tmp_path / "out")]
    assert command(words) == 0
    message = "special tokens added for the input template: [SEP], [CLS], <s>"
    assert message in capsys.readouterr().err
    assert load_tuned(tmp_path / "out", "cpu").tokenizer.vocab.size == theirs.SIZE + 3


@pytest.mark.full
def test_an_imported_gpt1_writes_answers_after_new_tokens(
    trained: TrainedModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "answers.tsv"
    file.write_text("\n".join(["text\tlabel", *(f"{e.text}\t{e.pair}" for e in PAIRS * 4)]) + "\n")
    words = [
        "tune",
        "--strategy=full",
        str(trained.run),
        "--train",
        str(file),
        "--dev",
        str(file),
        "--device",
        "cpu",
    ]
    words += ["--task", "text_to_text", "--set", "task.metric=answer", "--lr", "1e-2"]
    assert command([*words, "--seeds", "1", "--epochs", "30", "--out", str(tmp_path / "out")]) == 0
    assert "special tokens added for the input template: [SEP], </s>" in capsys.readouterr().err
    assert command(["predict", str(tmp_path / "out"), str(file), "--device", "cpu"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert all(row["prediction"] == row["label"] for row in rows)
