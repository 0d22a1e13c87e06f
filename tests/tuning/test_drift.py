"""What fine-tuning changed: weights, states, losses on lines and planes, and their curvature."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import foreword
from foreword.cli.main import run as command
from foreword.errors import UserError
from foreword.runs.run_folder import open_run
from foreword.tuning.curvature import hessian_product, largest_eigenvalue
from foreword.tuning.drift import (
    WeightChange,
    change_of,
    distances,
    layer_of,
    line,
    linear_cka,
    loss_of,
    plane,
    similarities,
)
from foreword.tuning.open_tuned import open_tuned
from foreword.tuning.outputs import mean_loss

from .runs import make_run, reviews

DEV = reviews(24, 2)


def tuned_way(
    tmp_path: Path, layout: str = "encoder", name: str = "tuned", **settings: object
) -> WeightChange:
    folder = tmp_path / "run"
    if not folder.exists():
        make_run(folder, layout)
    examples = [(example.text, example.label) for example in reviews(48, 1)]
    dev = [(example.text, example.label) for example in DEV]
    options = {"seeds": 1, "epochs": 2, "device": "cpu", "progress": False, "lr": 1e-3}
    result = foreword.tune(
        folder, examples, dev, name=name, **{"strategy": "full", **options, **settings}
    )
    return change_of(open_tuned(result.out, "cpu"), open_run(folder, "cpu"), DEV, name)


@pytest.mark.product(few=1)
@pytest.mark.parametrize("layout", ["encoder", "decoder", "recurrent", "encoder_decoder"])
def test_the_end_of_the_line_is_the_tuned_model_and_its_start_the_pretrained_one(
    layout: str, tmp_path: Path
) -> None:
    change = tuned_way(tmp_path, layout)
    pretrained = open_run(tmp_path / "run", "cpu").model.backbone
    for name, weight in pretrained.named_parameters():
        start = change.start[f"backbone.{name}"][: len(weight)]
        differs = (start != weight).flatten(1).any(1) if weight.ndim > 1 else start != weight
        assert set(differs.nonzero().flatten().tolist()) <= set(change.examples.template.fresh), (
            name
        )
    before, after = line(change, [0.0, 1.0])
    saved = json.loads((tmp_path / "run/tuned/tuned/scores.json").read_text(encoding="utf-8"))
    assert after.metric == "accuracy"
    assert after.score == pytest.approx(saved["rows"][0]["accuracy"])
    assert before != after
    assert loss_of(change) == after  # the network has its own weights again


@pytest.mark.full
@pytest.mark.parametrize("layout", ["decoder", "encoder_decoder"])
@pytest.mark.parametrize("metric", ["accuracy", "answer"])
def test_a_model_that_answers_in_text_has_a_way_too(
    layout: str, metric: str, tmp_path: Path
) -> None:
    change = tuned_way(tmp_path, layout, task="text_to_text", settings={"task.metric": metric})
    pretrained = open_run(tmp_path / "run", "cpu").model
    for name, weight in pretrained.backbone.named_parameters():
        if name != "embedding.token.weight":  # of which tokens of the answer's form are new
            assert torch.equal(change.start[f"backbone.{name}"], weight)
    assert not change.random_head  # the output layer is that of pretraining
    before, after = line(change, [0.0, 1.0])
    assert after.value < before.value and after.metric == ("accuracy", "tokens")[metric == "answer"]
    parameters = list(change.network.parameters())
    assert (
        largest_eigenvalue(
            lambda: mean_loss(change.network, change.task, change.examples, np.arange(8)),
            parameters,
        )
        > 0
    )
    assert distances(change)["all"] > 0 and similarities(change)[-1] < 1


def test_a_model_from_scratch_started_from_random_weights_of_its_seed(tmp_path: Path) -> None:
    change = tuned_way(tmp_path, from_scratch=True)
    assert not change.is_pretrained
    pretrained = open_run(tmp_path / "run", "cpu").model.backbone
    name, weight = next(iter(pretrained.named_parameters()))
    # `make_run` initialises with seed 1 too, before its vocabulary is extended.
    assert change.start[f"backbone.{name}"].shape[1:] == weight.shape[1:]
    assert 0 < distances(change)["all"] < 1


def test_a_frozen_backbone_did_not_move(tmp_path: Path) -> None:
    change = tuned_way(tmp_path, strategy="frozen")
    moved = distances(change)
    assert moved["all"] == moved["layer 1"] == moved["embedding"] == 0
    assert moved["head"] > 0
    assert similarities(change) == pytest.approx([1, 1, 1])


def test_distances_are_relative_to_the_start_by_layer(tmp_path: Path) -> None:
    change = tuned_way(tmp_path)
    moved = distances(change)
    assert list(moved) == ["embedding", "layer 1", "layer 2", "other", "head", "all"]
    names = [name for name in change.start if name.startswith("backbone.stack.blocks.1.")]
    apart = torch.cat([(change.end[name] - change.start[name]).flatten() for name in names])
    start = torch.cat([change.start[name].flatten() for name in names])
    assert moved["layer 2"] == pytest.approx(float(apart.norm() / start.norm()), rel=1e-5)


def test_a_tuning_can_measure_its_own_change(tmp_path: Path) -> None:
    change = tuned_way(tmp_path, settings={"tune.measures_change": True})
    saved = json.loads((tmp_path / "run/tuned/tuned/scores.json").read_text(encoding="utf-8"))
    assert saved["rows"][0]["distance"] == pytest.approx(distances(change)["all"], rel=1e-4)
    examples = change.examples  # of the same texts' distribution, and not the same
    curvature = largest_eigenvalue(
        lambda: mean_loss(change.network, change.task, change.examples, np.arange(len(examples))),
        [*change.network.parameters()],
    )
    assert saved["rows"][0]["curvature"] == pytest.approx(curvature, rel=0.5)


@pytest.mark.parametrize(
    ("name", "layer"),
    [
        ("head.0.weight", "head"),
        ("scalar_mix.weights", "head"),
        ("backbone.embedding.token.weight", "embedding"),
        ("backbone.stack.blocks.10.attention.query.bias", "layer 11"),
        ("backbone.core.weight_hh_l1", "layer 2"),
        ("backbone.decoder.blocks.0.cross.query.weight", "decoder 1"),
        ("backbone.stack.final_norm.weight", "other"),
    ],
)
def test_parameters_belong_to_layers(name: str, layer: str) -> None:
    assert layer_of(name) == layer


def test_cka_is_1_for_rotated_and_scaled_states_and_small_for_others() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(500, 6))
    rotation, _ = np.linalg.qr(rng.normal(size=(6, 6)))
    assert linear_cka(x, 3 * x @ rotation + 2) == pytest.approx(1)
    assert linear_cka(x, rng.normal(size=(500, 6))) < 0.1


@pytest.mark.full
def test_the_plane_has_the_line_and_both_ends(tmp_path: Path) -> None:
    change = tuned_way(tmp_path)
    other = tuned_way(tmp_path, name="scratch", from_scratch=True)
    losses = plane(change, other, [0.0, 1.0], [0.0, 1.0])
    np.testing.assert_allclose(losses[0], [loss.value for loss in line(change, [0.0, 1.0])])
    assert losses[1, 0] == pytest.approx(loss_of(other).value, rel=1e-5)


def test_another_run_is_refused(tmp_path: Path) -> None:
    tuned_way(tmp_path)
    model = open_tuned(tmp_path / "run/tuned/tuned")
    wider = open_run(make_run(tmp_path / "wider", d_model=64), "cpu")
    with pytest.raises(UserError, match=r"was not tuned from .*--run names the run"):
        change_of(model, wider, DEV, "tuned")


def exact_hessian(network: nn.Module, loss_with: object) -> torch.Tensor:
    parameters = list(network.parameters())
    sizes = [p.numel() for p in parameters]

    def loss(flat: torch.Tensor) -> torch.Tensor:
        parts = [v.view_as(p) for v, p in zip(flat.split(sizes), parameters, strict=True)]
        names = [name for name, _ in network.named_parameters()]
        return loss_with(dict(zip(names, parts, strict=True)))  # type: ignore[operator]

    flat = torch.cat([p.detach().flatten() for p in parameters])
    hessian: torch.Tensor = torch.autograd.functional.hessian(loss, flat)
    return hessian


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_largest_eigenvalue_is_that_of_the_exact_hessian(dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    network = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)).to(dtype)
    x, y = torch.randn(20, 5, dtype=dtype), torch.randint(3, (20,))

    def loss_with(weights: dict[str, torch.Tensor]) -> torch.Tensor:
        outputs = torch.func.functional_call(network, weights, (x,))
        return nn.functional.cross_entropy(outputs, y)

    hessian = exact_hessian(network, loss_with)
    before = [p.detach().clone() for p in network.parameters()]
    loss = lambda: nn.functional.cross_entropy(network(x), y)  # noqa: E731
    found = largest_eigenvalue(loss, list(network.parameters()))
    assert found == pytest.approx(float(torch.linalg.eigvalsh(hessian)[-1]), rel=0.01)
    after = list(network.parameters())
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    vector = torch.cat([torch.randn_like(p).flatten() for p in before])
    vector = vector / vector.norm()
    product = hessian_product(loss, after, vector)
    expected = hessian @ vector
    torch.testing.assert_close(product, expected, atol=5e-4, rtol=5e-3)


def test_the_curvature_of_a_tuned_model_is_that_of_its_exact_hessian(tmp_path: Path) -> None:
    change = tuned_way(tmp_path)
    head = [p for name, p in change.network.named_parameters() if name.startswith("head.")]
    numbers = np.arange(8)
    rows = []
    gradients = torch.autograd.grad(
        mean_loss(change.network, change.task, change.examples, numbers), head, create_graph=True
    )
    for one in torch.cat([g.flatten() for g in gradients]):
        second = torch.autograd.grad(one, head, retain_graph=True)
        rows.append(torch.cat([g.flatten() for g in second]))
    exact = float(torch.linalg.eigvalsh(torch.stack(rows))[-1])
    found = largest_eigenvalue(
        lambda: mean_loss(change.network, change.task, change.examples, numbers), head
    )
    assert found == pytest.approx(exact, rel=0.02)


@pytest.mark.full
def test_the_command_saves_what_the_report_shows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tuned_way(tmp_path)
    tuned_way(tmp_path, name="scratch", from_scratch=True)
    dev = tmp_path / "dev.tsv"
    lines = [f"{example.text}\t{example.label}" for example in DEV]
    dev.write_text("\n".join(["text\tlabel", *lines]), encoding="utf-8")
    folders = [str(tmp_path / "run/tuned" / name) for name in ("tuned", "scratch")]
    assert command(["drift", *folders, "--dev", str(dev), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["start"] for row in found["rows"]] == ["pretrained", "from scratch"]
    assert len(found["line"]) == 2 * 21 and len(found["plane"]) == 121
    (tmp_path / "run/metrics.jsonl").write_text("", encoding="utf-8")
    assert command(["report", str(tmp_path / "run")]) == 0
    page = (tmp_path / "run/report.html").read_text(encoding="utf-8")
    assert "What fine-tuning changed: tuned, scratch" in page and "data:image/png" in page


@pytest.mark.full
def test_models_scored_on_other_texts_are_shown_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, folders = make_run(tmp_path / "run"), []
    for seed in (1, 2):
        file = tmp_path / f"{seed}.tsv"
        lines = [f"{example.text}\t{example.label}" for example in reviews(12, seed)]
        file.write_text("\n".join(["text\tlabel", *lines]), encoding="utf-8")
        options = {"seeds": 1, "epochs": 1, "device": "cpu", "progress": False}
        folders.append(
            str(foreword.tune(run, file, file, name=f"of-{seed}", **options, strategy="full").out)
        )
    assert command(["drift", *folders, "--examples", "8", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["rows"]) == 2


def test_mistakes_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tuned_way(tmp_path)
    folder = tmp_path / "run/tuned/tuned"

    def refused(*words: object) -> str:
        assert command(["drift", *map(str, words)]) == 2
        captured = capsys.readouterr()
        assert captured.out == "" and captured.err.count("\n") == 1
        return captured.err

    assert "--dev names labelled examples" in refused(folder)  # tuned on examples in memory
    assert "was pretrained and not fine-tuned" in refused(tmp_path / "run")
    moved = folder.rename(tmp_path / "elsewhere")
    assert "--run names the run it was tuned from" in refused(moved, "--dev", "x.tsv")
