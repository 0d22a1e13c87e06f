from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import foreword
from foreword.data.holdout import SplitFiles
from foreword.data.write_shards import PrepareSettings, prepare
from foreword.errors import DamagedError, UserError
from foreword.evaluation import heldout
from foreword.evaluation.sampling import GREEDY
from foreword.runs.run_folder import open_run
from foreword.text.tokenizer import Tokenizer
from foreword.train import checkpoint
from tests.damage import flip
from tests.evaluation.conftest import Make
from tests.train import runs


def test_a_loaded_model_fills_generates_and_scores(make_run: Callable[..., Path]) -> None:
    encoder = foreword.load(make_run("encoder"), device="cpu")
    assert len(encoder.fill("The [MASK] sat.", top=2).blanks[0]) == 2
    assert encoder.recipe.packing.length == 32
    assert encoder.module.count_parameters() > 0
    decoder = foreword.load(make_run("decoder"), device="cpu")
    prompts = ["The cat", "A bird sang"]
    texts = decoder.generate(prompts, GREEDY)
    assert texts == [decoder.generate(prompt, GREEDY) for prompt in prompts]
    assert len(decoder.score("The cat sat.").log_probs) == 5
    assert decoder.generate(prompts, temperature=0) == texts
    short = decoder.generate("The cat", GREEDY, tokens=2)
    assert texts[0].startswith(short) and len(short) < len(texts[0])
    for settings, message in (
        ({"temprature": 0}, "temprature: no such setting; did you mean 'temperature'"),
        ({"top_p": 2}, "top_p: must be a number above 0 and at most 1"),
        ({"tokens": 1.5}, "tokens: expected a whole number"),
    ):
        with pytest.raises(UserError, match=message):
            decoder.generate("The cat", **settings)


def test_an_unknown_device_is_refused(make_run: Callable[..., Path]) -> None:
    with pytest.raises(
        UserError, match="--device: there is no 'gpu'; there is: auto, cpu, cuda, mps"
    ):
        foreword.load(make_run("decoder"), "gpu")


def test_a_checkpoint_folder_loads_like_its_run(make_run: Callable[..., Path]) -> None:
    folder = make_run("decoder")
    step = folder / "checkpoints" / "step-00000001"
    assert (
        foreword.load(step).score("The cat").totals == foreword.load(folder).score("The cat").totals
    )
    with pytest.raises(UserError, match="no such folder"):
        foreword.load(folder / "nowhere")


def test_a_damaged_training_state_does_not_keep_a_model_from_being_read(tmp_path: Path) -> None:
    text = runs.write_text(tmp_path / "text")
    run = runs.whole(runs.recipe(steps=2), text, tmp_path / "run")
    newest = checkpoint.newest(run)
    file = newest / "optimizer.safetensors"
    file.write_bytes(flip(file.read_bytes(), -1))
    for path in (run, newest):
        assert open_run(path, "cpu").notes == ()
    with pytest.raises(DamagedError):
        checkpoint.verify(newest)


def test_the_held_out_loss_of_a_run_has_count_based_baselines(
    make_prompted_run: Make, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    text = tmp_path / "text.txt"
    lines = [f"The cat sat on the mat. The dog ran to the river {n}." for n in range(400)]
    text.write_text("\n\n".join(lines), encoding="utf-8")
    prompted = make_prompted_run("decoder")
    run = Path(prompted.name)
    with pytest.raises(UserError, match="--data"):
        heldout.shards_of(prompted, run)
    prepare(SplitFiles.find([text]), tokenizer, run / "shards", PrepareSettings(heldout=0.2))
    prepared = heldout.shards_of(prompted, run)
    losses = heldout.on_prepared(prompted, prepared)
    assert [one.what for one in losses][1:] == ["bigram counts", "unigram counts"]
    model, bigram, unigram = (one.loss for one in losses)
    assert bigram < unigram < model, "random weights predict worse than counts"
    assert heldout.on_prepared(prompted, prepared) == losses
    with heldout.shards_of_texts(prompted, [str(text)]) as shards:
        other = heldout.on_shards(prompted, shards, rows=4)
    assert other.predictions <= 4 * 32
    assert other.bits_per_byte is not None and other.bits_per_byte > 0
