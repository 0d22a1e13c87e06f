"""`foreword check`: its numbers, and the batch it shows."""

from __future__ import annotations

import gzip
import json
import math
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

import foreword
from foreword.cli.main import run
from foreword.runs.corpus import corpus
from foreword.runs.run_folder import Run
from foreword.runs.setup import set_up_training
from foreword.train import device
from tests.cli.conftest import Refused
from tests.train import runs


@pytest.fixture
def text(tmp_path: Path) -> Path:
    return runs.write_text(tmp_path / "text")


def write(tmp_path: Path, family: str, **train: object) -> str:
    file = tmp_path / "tiny.toml"
    file.write_text(runs.recipe(family, **train).dumps())
    return str(file)


def checked(words: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    capsys.readouterr()
    assert run(["check", *words, "--json"]) == 0
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


def test_sizes_need_no_text(capsys: pytest.CaptureFixture[str]) -> None:
    result = checked(["bert_base"], capsys)
    assert result["parameters"]["total"] == 110_106_428
    memory = result["memory_bytes"]
    assert memory["weights"] + memory["gradients"] + memory["optimizer"] == 16 * 110_106_428
    assert memory["total"] < memory["available"]
    assert foreword.check("bert_base").data()["parameters"] == result["parameters"]
    assert run(["check", "gpt3_175b"]) == 0  # which would not fit
    shown = capsys.readouterr().out
    assert "174,604,259,328: embedding" in shown
    assert re.search(r"at least (2\.9|3\.0) TB of ", shown)  # in 16 bits or in 32
    assert run(["check", "encoder", "--hours", "1"]) == 2  # whose sizes depend on the text


def test_check_gives_the_numbers_of_the_run(
    text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = write(tmp_path, "encoder", steps=5, precision="fp32")
    result = checked([recipe, "--data", str(text)], capsys)
    made = runs.recipe("encoder", steps=5)
    done = runs.begin(made, text, tmp_path / "run")
    runs.train_run(done)
    provenance = json.loads((done / "run.json").read_text())
    parts = result["parameters"]
    assert parts["total"] == provenance["parameters"]
    assert parts["embedding"] + parts["stack"] + parts["heads"] == parts["total"]
    memory = result["memory_bytes"]
    assert memory["weights"] == 4 * parts["total"]
    assert memory["gradients"] == made.train.threads * memory["weights"]
    assert 8 * parts["total"] <= memory["optimizer"] < 8 * parts["total"] + 1000  # and step counts
    assert result["data"]["tokens"] == provenance["data"]["counts"]["train"]["tokens"]
    last = runs.logged(done, "train")[-1]
    assert result["flops"]["total"] == pytest.approx(last["flops"], rel=0.05)
    assert result["tokens_per_step"] * 5 == last["tokens"]
    assert result["first_loss"] == pytest.approx(math.log(result["data"]["vocab"]), rel=0.05)
    assert result["seconds"]["total"] == pytest.approx(5 * result["seconds"]["per_step"])
    setup = set_up_training(made, *corpus(Run(done), runs.stage))
    assert result["epochs"] == pytest.approx(5 * 4 / setup.feed.packed.rows_per_epoch)


@pytest.mark.full
def test_documents_and_empty_lines_add_up_to_the_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = runs.write_text(tmp_path / "text", files=1) / "0.txt"
    lines = [*text.read_text(encoding="utf-8").splitlines(), "", " ", "last."]
    text.write_text("\n".join(lines), encoding="utf-8")
    words = [write(tmp_path, "encoder"), "--data", str(text), "--heldout", "0.01"]
    data = checked(words, capsys)["data"]
    assert data["documents"] + data["heldout_documents"] == len(lines) - 2
    assert data["counts"]["empty_documents"] == 2
    (note,) = data["notes"]
    assert note.endswith("do not fill one row of 16: no held-out loss is measured")
    more, _ = checked([*words, "--set", "train.batch=64"], capsys)["data"]["notes"]
    assert more.startswith("one step of 64 rows reads the text ")
    assert run(["check", *words]) == 0
    out = capsys.readouterr().out
    assert f"tokens in {data['documents']} documents, " in out and "notes " in out


@pytest.mark.full
@pytest.mark.parametrize("is_emulated", [True, False])
def test_emulated_bf16_is_said_wherever_it_is_chosen(
    is_emulated: bool,
    text: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(device, "multiplies_bf16", lambda device: not is_emulated)
    words = [write(tmp_path, "decoder", steps=1, precision="bf16"), "--data", str(text)]
    assert run(["check", *words]) == 0
    assert ("so it is emulated" in capsys.readouterr().out) == is_emulated
    pretrained, tuned = str(tmp_path / "run"), str(tmp_path / "tuned")
    (tmp_path / "rows.csv").write_text("text,label\n" + "once,a\nupon,b\n" * 8)
    rows, bf16 = str(tmp_path / "rows.csv"), ["--precision", "bf16"]
    tune = [
        "tune",
        "--strategy=full",
        pretrained,
        "--train",
        rows,
        "--dev",
        rows,
        "--epochs",
        "1",
        "--seeds",
        "1",
        *bf16,
    ]
    for command in (
        ["pretrain", *words, "--out", pretrained],
        [*tune, "--out", tuned],
        ["predict", tuned, rows, *bf16],
    ):
        assert run(command) == 0, capsys.readouterr().err
        assert ("so it is emulated" in capsys.readouterr().err) == is_emulated, command


@pytest.mark.full
def test_activations_grow_with_the_micro_batch(
    text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "foreword.planning.resident._reset", lambda: False
    )  # a system without peaks
    recipe = write(tmp_path, "decoder")
    sizes = []
    for micro in (1, 4):
        words = [recipe, "--data", str(text), "--set", f"train.micro_batch={micro}"]
        sizes.append(checked(words, capsys)["memory_bytes"]["activations"])
    assert 2 < sizes[1] / sizes[0] <= 4.2


def test_check_prints_numbers_rows_and_a_legend(
    text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    words = ["check", write(tmp_path, "encoder"), "--data", str(text), "--rows", "1"]
    assert run([*words, "--epochs", "100"]) == 0
    output = capsys.readouterr().out
    for fact in ("parameters", "memory", "FLOPs per step", "chance loss", "row 1 of 4"):
        assert fact in output
    assert "100 epochs, worth 16.4 of new text" in output
    assert "replaced by [MASK]" in output
    assert not list((tmp_path / "tmp").iterdir())  # nothing is left


@pytest.mark.full
def test_large_text_is_read_in_part(
    text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = write(tmp_path, "decoder")
    whole = checked([recipe, "--data", str(text)], capsys)["data"]
    assert whole["share_read"] == 1
    monkeypatch.setattr("foreword.planning.check.SAMPLE_BYTES", 3_000)
    part = checked([recipe, "--data", str(text)], capsys)["data"]
    assert part["share_read"] < 0.6
    assert part["tokens"] == pytest.approx(whole["tokens"], rel=0.25)


@pytest.mark.full
def test_the_share_read_of_compressed_text_is_of_the_text(
    text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = write(tmp_path, "decoder")
    packed = tmp_path / "packed"
    packed.mkdir()
    for file in text.iterdir():
        (packed / f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes()))
    monkeypatch.setattr("foreword.planning.check.SAMPLE_BYTES", 3_000)
    plain, part = (checked([recipe, "--data", str(f)], capsys)["data"] for f in (text, packed))
    assert part["share_read"] == pytest.approx(plain["share_read"], rel=0.05)
    assert part["tokens"] == pytest.approx(plain["tokens"], rel=0.05)


def test_shards_are_checked_without_being_changed(
    text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = tmp_path / "shards"
    assert run(["prepare", str(text), "--out", str(made), "--kind", "word"]) == 0
    before = sorted(made.rglob("*"))
    result = checked([write(tmp_path, "decoder"), "--data", str(made)], capsys)
    assert result["data"]["share_read"] == 1
    assert sorted(made.rglob("*")) == before


@pytest.mark.full
def test_check_takes_the_held_out_text_and_start_of_a_run(
    text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], refused: Refused
) -> None:
    recipe, apart = write(tmp_path, "decoder", steps=2), tmp_path / "apart.txt"
    apart.write_text("the old cat sat on a red house.\n" * 20)
    words = [recipe, "--data", str(text), "--heldout", str(apart)]
    assert run(["pretrain", *words, "--out", str(tmp_path / "run")]) == 0
    counts = json.loads((tmp_path / "run" / "run.json").read_text())["data"]["counts"]
    result = checked(words, capsys)
    assert result["data"]["tokens"] == counts["train"]["tokens"]
    assert result["data"]["heldout_tokens"] == counts["heldout"]["tokens"]
    start = ["--from", str(tmp_path / "run")]
    begun = checked([*words, *start], capsys)
    assert begun["data"]["vocab"] == result["data"]["vocab"]
    assert begun["first_loss"] < result["first_loss"]
    for more, message in (
        (["--heldout", str(text)], "is in both --data and --heldout"),
        (["--heldout", "1.5"], "--heldout: must be a number of at least 0"),
        (["--extend-vocabulary", "5"], "--extend-vocabulary: requires --from"),
        ([*start, "--extend-vocabulary", "5"], "does not join pieces"),
    ):
        assert message in refused("check", recipe, "--data", str(text), *more)


def test_errors_of_check_name_the_users_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "short.txt").write_text("a b c.\nd e f.\n")
    assert run(["check", write(tmp_path, "decoder"), "--data", str(tmp_path / "short.txt")]) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith(f"foreword: {tmp_path / 'short.txt'}: only 10 tokens, but a row needs")
    assert "sample" not in last and "shards" not in last


@pytest.mark.full
def test_privacy_counts_what_looks_personal(
    text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("phonenumbers", "stdnum", "detect_secrets"):
        pytest.importorskip(name)
    (text / "mail.txt").write_text(
        "write to jane@example.org or +44 20 7946 0958", encoding="utf-8"
    )
    words = [write(tmp_path, "encoder"), "--data", str(text), "--privacy"]
    counts = {row["kind"]: row for row in checked(words, capsys)["privacy"]["counts"]}
    assert counts["e-mail address"]["found"] == counts["telephone number"]["found"] == 1
    assert counts["e-mail address"]["first"].endswith("mail.txt:1")
    assert run(["check", *words]) == 0
    captured = capsys.readouterr()
    assert "ja**@*******.***" in captured.out and "jane@example.org" not in captured.out
    shown = " ".join((captured.out + captured.err).split())
    assert "telephone number (+...)" in shown and "numbers with a country code" in shown
    assert "keys of known services" in shown and "Other secrets are not seen" in shown
    assert run(["check", *words, "--country", "US"]) == 0
    captured = capsys.readouterr()
    shown = " ".join((captured.out + captured.err).split())
    assert "telephone number (+...," in shown and "with a country code, or of US" in shown
    # Text alone, without a recipe.
    alone = checked([str(text / "mail.txt"), "--privacy"], capsys)
    assert list(alone) == ["privacy"]
    assert {row["kind"] for row in alone["privacy"]["counts"] if row["found"]} == {
        "e-mail address",
        "telephone number",
    }


def test_privacy_needs_its_packages_and_text(
    text: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    refused: Refused,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = ["check", write(tmp_path, "encoder"), "--data", str(text)]
    assert run([*words, "--country", "US"]) == 2
    assert capsys.readouterr().err == "foreword: --country: requires --privacy\n"
    monkeypatch.setitem(sys.modules, "phonenumbers", None)
    assert "pip install 'foreword[privacy]'" in refused(*words, "--privacy")
