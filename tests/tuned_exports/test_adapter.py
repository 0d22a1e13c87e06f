"""The change of LoRA alone: what `peft` adds to the pretrained model is the tuned one."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from foreword import tune
from foreword.cli.main import run as command
from foreword.tuned_exports import adapter
from tests.tuning.runs import reviews
from tests.tuning.tasks.test_chat import SINGLE

pytest.importorskip("transformers")
FAST = {"seeds": 1, "epochs": 1, "lr": 3e-2, "device": "cpu", "progress": False}


@pytest.fixture(scope="module", params=["modern_decoder_tiny", "gpt2_tiny"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from foreword.runs.recipe import load_recipe
    from foreword.text.tokenizers.word import Word
    from tests.evaluation.conftest import write_run

    words = Word().train([" ".join(one.text for one in reviews(40, 1))] * 3)
    return write_run(tmp_path_factory.mktemp("run"), load_recipe(request.param), words)


@pytest.mark.product(few=1)
@pytest.mark.parametrize("task", ["classify", "chat"])
def test_pretrained_weights_and_factors_give_the_tuned_ones(
    task: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train = [one[:2] for one in reviews(16, 1)] if task == "classify" else SINGLE * 4
    tuned = tune(
        run,
        train,
        train,
        task=task,
        strategy="lora",
        out=tmp_path / task,
        name=tmp_path.name,
        **FAST,
    )
    for source, name in ((run, "base"), (tuned.out, "whole")):
        assert command(["export", str(source), "--out", str(tmp_path / name)]) == 0
    call = ["export", str(tuned.out), "--adapter", str(run), "--out", str(tmp_path / "adapter")]
    capsys.readouterr()
    assert command([*call, "--json"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["rank"] in (8, 16)
    assert ("resize_token_embeddings" in said.err) is (task == "chat")
    config = json.loads((tmp_path / "adapter" / adapter.CONFIG).read_text())
    base, whole, change = (
        load_file(tmp_path / folder / file)
        for folder, file in (
            ("base", "model.safetensors"),
            ("whole", "model.safetensors"),
            ("adapter", adapter.WEIGHTS),
        )
    )
    for name, tensor in whole.items():
        module = name.rpartition(".")[0]
        key = f"{adapter.PREFIX}{module}"
        if module in config["target_modules"] and name.endswith(".weight"):
            delta = change[f"{key}.lora_B.weight"] @ change[f"{key}.lora_A.weight"]
            delta = delta * config["lora_alpha"] / config["r"]
            expected = base[name] + (delta.T if config["fan_in_fan_out"] else delta)
            torch.testing.assert_close(expected, tensor, rtol=1e-5, atol=1e-6)
            assert not torch.equal(base[name], tensor)
        else:
            expected = change.get(f"{adapter.PREFIX}{name}", base.get(name))
            assert torch.equal(expected, tensor)


def test_a_model_without_a_change_of_low_rank_is_refused(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train = [one[:2] for one in reviews(16, 1)]
    tuned = tune(
        run, train, train, out=tmp_path / "full", name=tmp_path.name, **FAST, strategy="full"
    )
    for model in (tuned.out, run):
        call = ["export", str(model), "--adapter", str(run), "--out", str(tmp_path / "adapter")]
        assert command(call) == 2
        assert "tune with --strategy lora" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.skipif(find_spec("peft") is None, reason="peft, which loads adapters, is not there")
@pytest.mark.parametrize("task", ["classify", "chat"])
def test_peft_gives_the_logits_of_the_tuned_model(task: str, run: Path, tmp_path: Path) -> None:
    import transformers
    from peft import PeftModel

    train = [one[:2] for one in reviews(16, 1)] if task == "classify" else SINGLE * 4
    how = {**FAST, "task": task, "strategy": "lora", "name": tmp_path.name}
    tuned = tune(run, train, train, out=tmp_path / task, **how, strategy="full").out
    for source, name, more in (
        (run, "base", []), (tuned, "whole", []), (tuned, "adapter", ["--adapter", str(run)]),
    ):  # fmt: skip
        assert command(["export", str(source), "--out", str(tmp_path / name), *more]) == 0
    config = transformers.AutoConfig.from_pretrained(tmp_path / "adapter")
    if task == "classify":
        kind = transformers.AutoModelForSequenceClassification
        base = kind.from_pretrained(tmp_path / "base", config=config)
    else:
        kind = transformers.AutoModelForCausalLM
        base = kind.from_pretrained(tmp_path / "base")
        base.resize_token_embeddings(config.vocab_size)
    model = PeftModel.from_pretrained(base, tmp_path / "adapter").eval()
    ids = torch.arange(config.vocab_size - 9, config.vocab_size)[None]
    with torch.no_grad():
        expected = kind.from_pretrained(tmp_path / "whole").eval()(input_ids=ids).logits
        torch.testing.assert_close(model(input_ids=ids).logits, expected, rtol=1e-4, atol=1e-5)
