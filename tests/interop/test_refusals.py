"""Refusals of what a folder holds and Foreword does not know, each in one line."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from foreword.cli.main import run as foreword
from foreword.errors import UserError
from foreword.interop import importing
from foreword.runs.provenance import read_state, write_files
from foreword.runs.run_folder import open_run, read_recipe
from tests import damage

from . import theirs

transformers = pytest.importorskip("transformers")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    theirs.write("bert", tmp_path / "bert")
    return tmp_path / "bert"


def set_keys(folder: Path, **keys: Any) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | keys))


def change(folder: Path, act: Callable[[dict[str, torch.Tensor]], object]) -> None:
    weights = load_file(folder / "model.safetensors")
    act(weights)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


@pytest.mark.product(few=5)
@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"position_embedding_type": "relative_key"}, "position_embedding_type is 'relative_key'"),
        (
            {"hidden_act": "silu"},
            "hidden_act is 'silu', but Foreword supports here: gelu, gelu_new",
        ),
        ({"is_decoder": True}, "is_decoder is True"),
        ({"frobnicate": 3}, "frobnicate is 3"),
        ({"auto_map": {"AutoModel": "x.Y"}}, "requires custom code"),
        ({"model_type": "brt"}, "did you mean 'bert'?"),
        ({"vocab_size": 99}, "130 rows, but config.json gives vocab_size 99"),
        (
            {"hidden_size": 64},
            r"word_embeddings.weight is (130, 32), but config.json implies (130, 64)",
        ),
        ({"num_hidden_layers": 1}, "holds bert.encoder.layer.1."),
        ({"num_hidden_layers": 3}, "has no tensor bert.encoder.layer.2."),
        ({"num_attention_heads": 5}, "d_model 32 is not divisible by 5 heads"),
        ({"vocab_size": "130"}, "vocab_size is '130', but Foreword supports here: a whole number"),
        ({"hidden_size": 32.0}, "hidden_size is 32.0, but Foreword supports here: a whole number"),
        (
            {"layer_norm_eps": "1e-12"},
            "layer_norm_eps is '1e-12', but Foreword supports here: a numb",
        ),
        ({"type_vocab_size": True}, "type_vocab_size is True, but Foreword supports here: a whole"),
        (
            {"max_position_embeddings": None},
            "max_position_embeddings is None, but Foreword supports",
        ),
    ],
)
def test_unsupported_settings_are_refused(folder: Path, keys: dict[str, Any], words: str) -> None:
    set_keys(folder, **keys)
    with pytest.raises(UserError) as caught:
        importing.read(folder)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.product(few=6)
@pytest.mark.parametrize(
    ("family", "keys", "words"),
    [
        ("longformer", {"attention_window": [8, 16]}, "one even number for all layers"),
        ("longformer", {"attention_window": ["8", "8"]}, "one even number for all layers"),
        ("longformer", {"attention_window": "8"}, "supports here: a whole number or a list"),
        (
            "t5",
            {"decoder_start_token_id": 50},
            "decoder_start_token_id is 50, but Foreword supports here: a special token: 0 ([PAD])",
        ),
        ("t5", {"decoder_start_token_id": None}, "decoder_start_token_id is None, but Foreword"),
        (
            "gpt2",
            {"n_inner": "128"},
            "n_inner is '128', but Foreword supports here: a whole number",
        ),
        (
            "xlnet",
            {"d_head": 16},
            "d_head is 16, but Foreword supports here: d_model / n_head, which",
        ),
        ("llama", {"num_key_value_heads": 2}, "4, one for each attention head"),
        ("llama", {"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "supports here: none"),
        ("llama", {"rope_theta": 5.0}, "rope_theta alone, the same as rope_theta"),
        ("llama", {"mlp_bias": True}, "mlp_bias is True, but Foreword supports here: False"),
        ("qwen3", {"layer_types": ["full_attention", "sliding_attention"]}, "in all layers"),
        ("qwen3_5_text", {"layer_types": None}, "layer_types is None, but Foreword supports"),
        ("qwen3_5_text", {"layer_types": ["linear_attention"] * 3}, "full_attention in every"),
        (
            "qwen3_5_text",
            {"layer_types": ["linear_attention", "full_attention", "full_attention", "x"]},
            "full_attention in every n-th layer",
        ),
        ("qwen3_5_text", {"linear_num_value_heads": 4}, "2, one for each head of keys"),
        (
            "qwen3_5_text",
            {"rope_parameters": {"rope_theta": 5e3, "rope_type": "default"}},
            "and partial_rotary_factor 1.0",
        ),
        ("modernbert", {"rope_parameters": {"rope_theta": 5.0}}, "a table each for sliding_atten"),
        ("modernbert", {"rope_parameters": {"full_attention": 5.0}}, "a table each for sliding"),
        (
            "modernbert",
            {"rope_parameters": {"full_attention": {"rope_theta": "5"}}},
            "rope_theta alone",
        ),
        ("modernbert", {"norm_bias": True}, "norm_bias is True, but Foreword supports here: False"),
        ("modernbert", {"global_attn_every_n_layers": 2}, "the first layer full, and each n-th"),
        (
            "modernbert",
            {"rope_parameters": {"full_attention": {"rope_type": "yarn", "factor": 4.0}}},
            "rope_theta alone",
        ),
        ("modernbert", {"global_rope_theta": 5.0}, "the same as global_rope_theta"),
    ],
)
def test_unsupported_settings_of_families_are_refused(
    tmp_path: Path, family: str, keys: dict[str, Any], words: str
) -> None:
    theirs.write(family, tmp_path)
    set_keys(tmp_path, **keys)
    with pytest.raises(UserError, match=re.escape(words)) as caught:
        importing.read(tmp_path)
    assert "\n" not in str(caught.value)


def test_another_start_token_for_generation_is_refused(tmp_path: Path) -> None:
    theirs.write("t5", tmp_path)
    file = tmp_path / "generation_config.json"
    file.write_text(json.dumps({"decoder_start_token_id": 1, "eos_token_id": 1}))
    words = r"generation_config.json: decoder_start_token_id is 1, .*: 0, as in config.json"
    with pytest.raises(UserError, match=words):
        importing.read(tmp_path)


def test_global_tokens_of_longformer_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs.write("longformer", tmp_path / "theirs")
    run, out = tmp_path / "run", str(tmp_path / "out")
    assert foreword(["import", str(tmp_path / "theirs"), "--out", str(run)]) == 0
    own = "longformer.encoder.layer.*.attention.self.key_global.weight"
    assert f"not imported: {own.replace('weight', 'bias')}, {own}, " in capsys.readouterr().err
    recipe = read_recipe(run)
    attention = replace(recipe.model.attention, global_tokens=1)
    write_files(
        run, read_state(run), replace(recipe, model=replace(recipe.model, attention=attention))
    )
    assert foreword(["export", str(run), "--out", out]) == 2
    assert "each call names the positions with global attention" in capsys.readouterr().err


def test_settings_without_effect_are_accepted(folder: Path) -> None:
    before = importing.read(folder)
    set_keys(folder, _name_or_path="x", position_embedding_type="absolute", pruned_heads={})
    assert importing.read(folder).recipe == before.recipe


def test_tensors_without_counterpart_are_refused(folder: Path) -> None:
    change(folder, lambda weights: weights.update(extra=torch.ones(2)))
    with pytest.raises(
        UserError, match="holds extra, for which Foreword's bert has no counterpart"
    ):
        importing.read(folder)


def test_a_tied_tensor_that_differs_is_refused(folder: Path) -> None:
    other = {"cls.predictions.decoder.weight": torch.ones(theirs.SIZE, 32)}
    change(folder, lambda weights: weights.update(other))
    with pytest.raises(UserError, match=r"decoder.weight should equal"):
        importing.read(folder)


def test_a_truncated_file_is_refused(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1000])
    with pytest.raises(UserError, match="damaged or cut short"):
        importing.read(folder)


def test_a_flipped_bit_of_an_export_is_refused(folder: Path, tmp_path: Path) -> None:
    run, out = tmp_path / "run", tmp_path / "out"
    assert foreword(["import", str(folder), "--out", str(run)]) == 0
    assert foreword(["export", str(run), "--out", str(out)]) == 0
    file = out / "model.safetensors"
    file.write_bytes(damage.flip(file.read_bytes(), -1))
    match = "damaged: model.safetensors does not match its checksum; export it again, or delete"
    with pytest.raises(UserError, match=match):
        importing.read(out)
    (out / "manifest.json").unlink()
    importing.read(out)


def test_a_pickle_is_refused(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(UserError, match=r"pytorch_model\.bin, a pickle.*save_pretrained"):
        importing.read(folder)


def test_a_folder_without_a_tokenizer_is_refused(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    with pytest.raises(UserError, match=r"holds no tokenizer\.json"):
        importing.read(folder)


def test_a_tokenizer_larger_than_the_embedding_is_refused(folder: Path) -> None:
    words = [f"x{n}" for n in range(theirs.SIZE)]
    file = folder / "tokenizer.json"
    table = json.loads(file.read_text())
    table["model"]["vocab"] |= {word: theirs.SIZE + n for n, word in enumerate(words)}
    file.write_text(json.dumps(table))
    with pytest.raises(UserError, match="260 tokens, but the embedding has only 130 rows"):
        importing.read(folder)


def test_sharded_weights_are_read_by_their_index(folder: Path) -> None:
    whole = importing.read(folder).model.state_dict()
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    files = {name: f"part-{n % 2}.safetensors" for n, name in enumerate(sorted(weights))}
    for file in set(files.values()):
        held = {name: weights[name] for name in files if files[name] == file}
        save_file(held, folder / file)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": files}))
    for name, value in importing.read(folder).model.state_dict().items():
        assert torch.equal(value, whole[name])
    (folder / "part-1.safetensors").unlink()
    with pytest.raises(UserError, match=r"part-1\.safetensors: is missing"):
        importing.read(folder)
    index.write_text(json.dumps({"weight_map": {"absent": "part-0.safetensors"}}))
    with pytest.raises(UserError, match=r"lists absent in part-0\.safetensors"):
        importing.read(folder)


def test_old_parameter_names_without_prefix_are_read(folder: Path) -> None:
    """As the oldest files have them, and as `BertModel` writes them."""
    whole = importing.read(folder).model.state_dict()

    def old(weights: dict[str, torch.Tensor]) -> None:
        for name in list(weights):
            if "LayerNorm" in name:
                other = name.replace("LayerNorm.weight", "LayerNorm.gamma")
                weights[other.replace("LayerNorm.bias", "LayerNorm.beta")] = weights.pop(name)
        weights["bert.embeddings.position_ids"] = torch.arange(theirs.LENGTH)[None]

    change(folder, old)
    for name, value in importing.read(folder).model.state_dict().items():
        assert torch.equal(value, whole[name])


def test_a_dropped_second_head_is_named(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    extra = {
        "bert.pooler.dense.weight": torch.ones(32, 32),
        "cls.seq_relationship.bias": torch.ones(2),
    }
    change(folder, lambda weights: weights.update(extra))
    assert foreword(["import", str(folder), "--out", str(tmp_path / "run")]) == 0
    captured = capsys.readouterr()
    assert "not imported: bert.pooler.dense.weight, cls.seq_relationship.bias" in captured.err
    assert "logit_difference" in captured.out


def test_a_name_on_the_hub_requires_download(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert foreword(["import", "some/model", "--out", str(tmp_path / "run")]) == 2
    assert "requires --download" in capsys.readouterr().err


def test_embedding_rows_without_a_token_are_kept(folder: Path, tmp_path: Path) -> None:
    """Published embeddings often have more rows than there are tokens."""
    padded = {
        name: torch.cat([load_file(folder / "model.safetensors")[name], torch.zeros(6, *shape)])
        for name, shape in {
            "bert.embeddings.word_embeddings.weight": (32,),
            "cls.predictions.bias": (),
        }.items()
    }
    change(folder, lambda weights: weights.update(padded))
    set_keys(folder, vocab_size=theirs.SIZE + 6)
    importing.save(importing.read(folder), tmp_path / "run")
    trained = open_run(tmp_path / "run", "cpu")
    assert trained.vocab.size == theirs.SIZE + 6
    assert trained.vocab.is_special[-6:].all()
    assert trained.tokenizer.token(theirs.SIZE + 1) == ""


def test_an_imported_run_has_nothing_to_resume(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    importing.save(importing.read(folder), run)
    assert foreword(["resume", str(run)]) == 2
    assert f"pretrain RECIPE --from {run} --data TEXT" in capsys.readouterr().err


def test_pretraining_continues_from_a_folder(folder: Path, tmp_path: Path) -> None:
    text, recipe = tmp_path / "text.txt", tmp_path / "recipe.toml"
    text.write_text("\n".join(" ".join(theirs.WORDS[n : n + 9]) for n in range(100)))
    recipe.write_text(
        'read = { documents = "line" }\nlayout = "encoder"\nobjective = "masked"\n'
        'model = "transformer"\ntrain = { batch = 2, device = "cpu", heldout_rows = 4 }\n'
        'packing = { kind = "documents", length = 24, bos = "[CLS]", eos = "[SEP]" }\n'
    )
    words = ["pretrain", str(recipe), "--from", str(folder), "--data", str(text)]
    assert foreword([*words, "--out", str(tmp_path / "run"), "--steps", "2"]) == 0
    assert foreword(["export", str(tmp_path / "run"), "--out", str(tmp_path / "hf")]) == 0
    assert open_run(tmp_path / "run", "cpu").recipe.model.d_model == 32


def test_conversion_from_half_precision_is_noted(folder: Path) -> None:
    whole = importing.read(folder).model.state_dict()
    change(folder, lambda weights: weights.update({n: t.half() for n, t in weights.items()}))
    imported = importing.read(folder)
    assert imported.notes == ("stored as torch.float16, converted to torch.float32",)
    for name, value in imported.model.state_dict().items():
        torch.testing.assert_close(value, whole[name], atol=1e-2, rtol=1e-2)


def test_an_old_tokenizer_is_converted(folder: Path) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    words = [*theirs.BERT.values(), *theirs.WORDS, "##s", "cat"]
    (folder / "vocab.txt").write_text("\n".join(words[: theirs.SIZE]) + "\n")
    tokenizer = importing.read(folder).tokenizer
    assert tokenizer.model_name == "WordPiece"
    assert tokenizer.encode("cats W3").tolist() == [words.index(w) for w in ("cat", "##s", "w3")]
    assert tokenizer.vocab.id("[MASK]") == words.index("[MASK]")


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("adapter_config.json", "adapter_config.json: adapters, which change what a model"),
        (
            "adapter_model.safetensors",
            "adapter_model.safetensors: more weights, which neither model.sa",
        ),
        (
            "other.safetensors",
            "other.safetensors: more weights, which neither model.safetensors nor",
        ),
    ],
)
def test_adapters_and_more_weights_are_refused(folder: Path, file: str, words: str) -> None:
    (folder / file).write_text("{}")
    with pytest.raises(UserError, match=re.escape(words)):
        importing.read(folder)


def test_files_that_nothing_reads_are_named(folder: Path) -> None:
    for name in ("modeling_x.py", "tf_model.h5", "README.md", "vocab.txt", ".gitattributes"):
        (folder / name).write_text("")
    (folder / "onnx").mkdir()
    assert importing.read(folder).notes == (
        f"not read in {folder}: modeling_x.py, onnx/, tf_model.h5",
    )


@pytest.mark.parametrize(
    ("file", "way"), [("tf_model.h5", "from_tf=True"), ("flax_model.msgpack", "from_flax=True")]
)
def test_weights_in_other_formats_are_refused_with_advice(
    folder: Path, file: str, way: str
) -> None:
    (folder / "model.safetensors").rename(folder / file)
    with pytest.raises(UserError, match=f"{file}, .*before 5.*{way}.*save_pretrained") as caught:
        importing.read(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("odd", [torch.nan, torch.inf])
def test_weights_that_are_not_finite_are_refused(folder: Path, odd: float) -> None:
    name = "bert.encoder.layer.1.output.dense.bias"
    change(folder, lambda weights: weights[name].__setitem__(3, odd))
    with pytest.raises(UserError, match=f"{name} holds numbers that are not finite"):
        importing.read(folder)


def test_the_whole_reason_of_transformers_is_shown(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`transformers` writes its reasons over several lines, the telling one not always first."""

    def fail(*_: object, **__: object) -> None:
        raise ValueError("Validation error for field 'heads':\n    ValueError: 5 are too many")

    imported = importing.read(folder)
    monkeypatch.setattr(transformers.BertForMaskedLM, "from_pretrained", fail)
    with pytest.raises(UserError) as caught:
        importing.check(imported)
    reason = "Validation error for field 'heads': ValueError: 5 are too many"
    assert str(caught.value) == f"{folder}: transformers cannot read it: {reason}"
