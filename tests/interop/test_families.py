"""Every family of `interop/hf`, both ways, against `transformers` itself."""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from foreword.interop import exporting, importing
from foreword.interop.check_logits import difference
from foreword.nn.masks import CausalMask, DocumentMask, FullMask
from foreword.runs.run_folder import open_run
from foreword.settings import kinds
from foreword.train import checkpoint
from foreword.types import Batch

from . import theirs

transformers = pytest.importorskip("transformers")

LENGTHS = [
    (40, 33),
    (30, 30),
    (30, 17),
    (9, 1),
]  # 40: all positions, and more than BigBird reads densely
WITH_SEGMENTS = {"albert", "bert", "big_bird", "electra", "xlnet"}
# BigBird's random blocks are drawn in training alone, so ours is compared with that mode.
STILL = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


@pytest.fixture(params=sorted(theirs.FAMILIES), scope="module")
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def folder(family: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp(family) / "theirs"
    theirs.write(family, made)
    return made


@pytest.fixture(scope="module")
def run(folder: Path) -> Path:
    out = folder.parent / "run"
    importing.save(importing.read(folder), out)
    return out


@pytest.fixture(scope="module")
def again(run: Path, folder: Path) -> Path:
    out = folder.parent / "again"
    exporting.export(open_run(run, "cpu"), out)
    return out


def test_every_family_is_tested() -> None:
    assert {name.partition("-")[0] for name in theirs.FAMILIES} == set(kinds.names("interop/hf"))


def tokens(lengths: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(2)
    ids = torch.randint(8, theirs.SIZE, (len(lengths), max(lengths)), generator=random)
    return ids, (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()


def load(folder: Path, training: bool = False) -> nn.Module:
    name = transformers.AutoConfig.from_pretrained(folder).architectures[0]
    is_big_bird = name.startswith("BigBird")
    model: nn.Module = getattr(transformers, name).from_pretrained(
        folder, attn_implementation="eager", **(STILL if is_big_bird and not training else {})
    )
    return model.train(training or is_big_bird)


def both(
    run: Path, folder: Path, lengths: tuple[int, ...], segments: bool, training: bool = False
) -> list[Tensor]:
    """Our logits and theirs, where there is text."""
    trained = open_run(run, "cpu")
    trained.model.train(training)
    ids, attention = tokens(lengths)
    positions = torch.arange(ids.shape[1]).expand_as(ids)
    within = FullMask() if attention.all() else DocumentMask(attention - 1, attention - 1)
    layout = kinds.name_of(trained.recipe.layout)
    second = (positions >= 4).long() if segments else None
    call: dict[str, Any] = {"input_ids": ids, "attention_mask": attention}
    if segments:
        call["token_type_ids"] = second
    if layout == "encoder_decoder":
        target = ids.flip(1)[:, :12]
        call["decoder_input_ids"] = target
        at = torch.arange(target.shape[1]).expand_as(target)
        source = Batch(ids, positions, within)
        whole = torch.ones_like(target)
        cross = DocumentMask(whole - 1, attention - 1)
        batch = Batch(target, at, CausalMask(), source=source, cross_mask=cross)
        counts = whole
    else:
        mask = CausalMask() & within if layout == "decoder" else within
        batch, counts = Batch(ids, positions, mask, segments=second), attention
    with torch.no_grad():
        output = load(folder, training)(**call)
        states = trained.model.backbone(batch).states
    expected = output.logits if "logits" in output else output.prediction_logits
    pair = [output[key] for key in ("seq_relationship_logits", "sop_logits") if key in output]
    assert len(pair) == ("pair" in trained.model.heads)
    for logits in pair:
        with torch.no_grad():
            ours = trained.model.heads["pair"](states[:, 0])
        torch.testing.assert_close(ours, logits, atol=1e-4, rtol=1e-4)
    if "replaced" in trained.model.heads:
        return [
            trained.model.heads["replaced"](states).squeeze(-1)[counts > 0],
            expected[counts > 0],
        ]
    return [trained.model.token_head(states)[counts > 0], expected[counts > 0]]


@pytest.mark.product
@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("direction", ["imported", "exported"])
def test_logits_equal_those_of_transformers(
    folder: Path, again: Path, run: Path, direction: str, lengths: tuple[int, int]
) -> None:
    ours, expected = both(
        run, folder if direction == "imported" else again, lengths, segments=False
    )
    assert expected.std() > 0.1, "the logits say nothing"
    torch.testing.assert_close(ours, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.product(few=3)
def test_logits_with_segments_equal_those_of_transformers(
    family: str, folder: Path, again: Path, run: Path
) -> None:
    model = open_run(run, "cpu").recipe.model
    has_segments = max(model.segments, 2 * getattr(model.position, "segments", False)) > 1
    assert has_segments == (family.partition("-")[0] in WITH_SEGMENTS)
    for where in (folder, again) if has_segments else ():
        for lengths in LENGTHS[:3]:
            ours, expected = both(run, where, lengths, segments=True)
            torch.testing.assert_close(ours, expected, atol=1e-4, rtol=1e-4)


def test_bigbird_attends_to_some_blocks_only(family: str, folder: Path) -> None:
    """Return a model with 40 positions, whose attention is not full in the comparison."""
    if family.startswith("big_bird"):
        model: Any = load(folder)
        model(**dict(zip(("input_ids", "attention_mask"), tokens(LENGTHS[0]), strict=True)))
        is_sparse = family == "big_bird"
        assert model.bert.attention_type == ("block_sparse" if is_sparse else "original_full")


@pytest.mark.product(few=8)
def test_import_then_export_gives_the_same_tensors(
    family: str, folder: Path, again: Path, run: Path
) -> None:
    trained = open_run(run, "cpu")
    exported = exporting.find_family(trained)
    assert kinds.name_of(exported) == family.partition("-")[0]
    # What is stored as a distance from 1 is rounded when 1 is added.
    maps = exported.tensors(trained.recipe, trained.vocab).maps
    rounded = {name for one in maps if one.offset for name in one.theirs}
    before, after = (load_file(f / "model.safetensors") for f in (folder, again))
    patterns = kinds.load("interop/hf", family.partition("-")[0]).names.dropped
    left = {name for name in before if any(fnmatch(name, p) for p in patterns)}
    assert before.keys() == {*after, *left}
    for name, tensor in after.items():
        most = 2**-23 if name in rounded else 0.0
        assert name in left or (tensor - before[name]).abs().max() <= most, name
    config, tokenizer = (
        cls.from_pretrained(again) for cls in (transformers.AutoConfig, transformers.AutoTokenizer)
    )
    assert config.vocab_size == theirs.SIZE
    for role, token in theirs.FAMILIES[family][2].items():
        assert getattr(tokenizer, role) == token


@pytest.mark.product(few=4)
def test_export_then_import_gives_the_same_bytes(folder: Path, run: Path) -> None:
    out, second = folder.parent / "out", folder.parent / "second"
    trained = open_run(run, "cpu")
    exporting.export(trained, out)
    importing.save(importing.read(out), second)
    for file in ("recipe.toml", f"checkpoints/{checkpoint.name_of(0)}/weights.safetensors"):
        assert (second / file).read_bytes() == (run / file).read_bytes()
    assert open_run(second, "cpu").tokenizer.fingerprint == trained.tokenizer.fingerprint
    assert open_run(second, "cpu").vocab.special == trained.vocab.special


@pytest.mark.product(few=3)
def test_the_logit_check_finds_a_wrong_weight(folder: Path) -> None:
    imported = importing.read(folder)
    exact, greatest = difference(
        imported.model, imported.recipe, imported.vocab, importing.family_in(folder), folder
    )
    assert exact < 3e-5 * greatest
    with torch.no_grad():
        next(iter(imported.model.backbone.parameters()))[9:].mul_(1.1)
    wrong = difference(
        imported.model, imported.recipe, imported.vocab, importing.family_in(folder), folder
    )[0]
    assert wrong > 1e-3
