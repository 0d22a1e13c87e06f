"""Exporting sentence embeddings: folders that `sentence_transformers` reads."""

from __future__ import annotations

import json
from pathlib import Path

from foreword.disk import atomic
from foreword.interop import exporting, tensors
from foreword.interop.hf._contract import Family, Table
from foreword.runs.trained_model import TrainedModel
from foreword.text.tokenizer import CONFIG as TOKENIZER_CONFIG
from foreword.tuning import export_folder
from foreword.tuning.tuned_model import TunedModel

POOLING = "1_Pooling"
MODES = {"mean": "mean_tokens", "first": "cls_token", "last": "lasttoken"}
OTHER_MODES = ("max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens")


def write(
    tuned: TunedModel, trained: TrainedModel, family: Family, out: Path
) -> tuple[str, dict[str, float | None]]:
    """Write the folder `out`: the backbone as `transformers` has it, and how states are pooled.

    Args:
        trained: the same backbone, as if it still had the heads of pretraining.

    Returns:
        The class in `transformers`, and how far the vectors are from its, None if it is not
        installed.

    Raises:
        UserError: the folder cannot be written, or `transformers` computes other vectors from it.
    """
    submodel, design = family.folders(trained.model, trained.recipe)[""]
    vocab, template = tuned.tokenizer.vocab, tuned.template
    architecture = _class_of(family)
    weights = tensors.to_hf(submodel, design, vocab, family, "backbone.")
    is_encoder = architecture.endswith("EncoderModel")
    weights = {k: w for k, w in weights.items() if not (is_encoder and k.startswith("decoder."))}
    with atomic.folder(out) as part:
        export_folder.write(
            tuned, trained, family, weights, {"architectures": [architecture]}, part
        )
        _require_padding(part)
        # What sentence_transformers does with it.
        modules: list[Table] = [
            {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
            {
                "idx": 1,
                "name": "1",
                "path": POOLING,
                "type": "sentence_transformers.models.Pooling",
            },
        ]
        exporting.write_json(part / "modules.json", modules)
        exporting.write_json(
            part / "sentence_bert_config.json",
            {"max_seq_length": template.length, "do_lower_case": False},
        )
        exporting.write_json(
            part / "config_sentence_transformers.json",
            {"prompts": {}, "default_prompt_name": None, "similarity_fn_name": "cosine"},
        )
        (part / POOLING).mkdir()
        exporting.write_json(part / POOLING / "config.json", _pooling(tuned))
        longest = family.differences(design).max_length or template.length
        difference = export_folder.check(tuned, part, min(longest, template.length))
    return architecture, difference


def _class_of(family: Family) -> str:
    """Return the name of the class without a head, of the encoder alone if there is a decoder."""
    has_decoder = family.names.layout == "encoder_decoder"
    return f"{family.names.stem}EncoderModel" if has_decoder else f"{family.names.stem}Model"


def _pooling(tuned: TunedModel) -> dict[str, object]:
    """Return the settings of pooling, by the names that every version reads."""
    chosen = MODES[getattr(tuned.task, "pooling")]  # noqa: B009
    modes = (*MODES.values(), *OTHER_MODES)
    return {
        "word_embedding_dimension": tuned.width,
        **{f"pooling_mode_{mode}": mode == chosen for mode in modes},
        "include_prompt": True,
    }


def _require_padding(folder: Path) -> None:
    """Let a tokenizer without a padding token pad with the end token; padding is never read."""
    file = folder / TOKENIZER_CONFIG
    config = json.loads(file.read_text(encoding="utf-8"))
    if not config.get("pad_token"):
        config["pad_token"] = next(
            config[role] for role in ("eos_token", "sep_token", "unk_token") if config.get(role)
        )
        exporting.write_json(file, config)
