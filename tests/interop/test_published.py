"""The published `config.json` of each family: every key is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from foreword.interop.hf.big_bird import BigBird
from foreword.interop.hf_config import HFConfig
from foreword.interop.importing import family_of
from foreword.runs.recipe import Recipe, load_recipe
from foreword.settings import config
from foreword.text.special import NAMES
from foreword.types import Vocab

SUMMARY = {
    "summary_activation": None,
    "summary_first_dropout": 0.1,
    "summary_proj_to_labels": True,
    "summary_type": "cls_index",
    "summary_use_proj": True,
}
BERT = {
    "attention_probs_dropout_prob": 0.1,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": 768,
    "initializer_range": 0.02,
    "intermediate_size": 3072,
    "layer_norm_eps": 1e-12,
    "max_position_embeddings": 512,
    "num_attention_heads": 12,
    "num_hidden_layers": 12,
    "pad_token_id": 0,
    "type_vocab_size": 2,
}
GPT = {
    "attn_pdrop": 0.1,
    "embd_pdrop": 0.1,
    "initializer_range": 0.02,
    "layer_norm_epsilon": 1e-05,
    "n_embd": 768,
    "n_head": 12,
    "n_layer": 12,
    "resid_pdrop": 0.1,
    **SUMMARY,
}
T5 = {
    "architectures": ["T5ForConditionalGeneration"],
    "d_ff": 2048,
    "d_kv": 64,
    "d_model": 512,
    "decoder_start_token_id": 0,
    "dropout_rate": 0.1,
    "eos_token_id": 1,
    "initializer_factor": 1.0,
    "is_encoder_decoder": True,
    "layer_norm_epsilon": 1e-06,
    "model_type": "t5",
    "n_positions": 512,
    "num_heads": 8,
    "num_layers": 6,
    "output_past": True,
    "pad_token_id": 0,
    "relative_attention_num_buckets": 32,
    "use_cache": True,
    "vocab_size": 32128,
}
PUBLISHED: dict[str, tuple[dict[str, Any], int | None]] = {
    "bert-base-uncased": (
        {
            **BERT,
            "architectures": ["BertForMaskedLM"],
            "gradient_checkpointing": False,
            "model_type": "bert",
            "position_embedding_type": "absolute",
            "transformers_version": "4.6.0.dev0",
            "use_cache": True,
            "vocab_size": 30522,
        },
        109_514_298,
    ),
    "roberta-base": (
        {
            **BERT,
            "bos_token_id": 0,
            "eos_token_id": 2,
            "layer_norm_eps": 1e-05,
            "max_position_embeddings": 514,
            "model_type": "roberta",
            "pad_token_id": 1,
            "type_vocab_size": 1,
            "vocab_size": 50265,
        },
        124_697_433 - 3 * 768,  # a segment of zeros, and two positions that no text reaches
    ),
    "albert-base-v2": (
        {
            **BERT,
            "attention_probs_dropout_prob": 0,
            "bos_token_id": 2,
            "classifier_dropout_prob": 0.1,
            "down_scale_factor": 1,
            "embedding_size": 128,
            "eos_token_id": 3,
            "gap_size": 0,
            "hidden_act": "gelu_new",
            "hidden_dropout_prob": 0,
            "inner_group_num": 1,
            "model_type": "albert",
            "net_structure_type": 0,
            "num_hidden_groups": 1,
            "num_memory_blocks": 0,
            "vocab_size": 30000,
        },
        11_221_680,
    ),
    "electra-small-generator": (
        {
            **BERT,
            "embedding_size": 128,
            "hidden_size": 256,
            "intermediate_size": 1024,
            "model_type": "electra",
            "num_attention_heads": 4,
            "summary_activation": "gelu",
            "summary_last_dropout": 0.1,
            "summary_type": "first",
            "summary_use_proj": True,
            "vocab_size": 30522,
        },
        None,
    ),
    "bigbird-roberta-base": (
        {
            **BERT,
            "attention_type": "block_sparse",
            "block_size": 64,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "gradient_checkpointing": False,
            "hidden_act": "gelu_new",
            "max_position_embeddings": 4096,
            "model_type": "big_bird",
            "num_random_blocks": 3,
            "rescale_embeddings": False,
            "sep_token_id": 66,
            "use_bias": True,
            "vocab_size": 50358,
        },
        None,
    ),
    "longformer-base-4096": (
        {
            **BERT,
            "attention_mode": "longformer",
            "attention_window": [512] * 12,
            "bos_token_id": 0,
            "eos_token_id": 2,
            "gradient_checkpointing": False,
            "ignore_attention_mask": False,
            "layer_norm_eps": 1e-05,
            "max_position_embeddings": 4098,
            "model_type": "longformer",
            "pad_token_id": 1,
            "sep_token_id": 2,
            "type_vocab_size": 1,
            "vocab_size": 50265,
        },
        148_711_257
        - 21_261_312
        - 3 * 768,  # less the projections of global attention; as RoBERTa's
    ),
    "ModernBERT-base": (
        {
            "architectures": ["ModernBertForMaskedLM"],
            "attention_bias": False,
            "attention_dropout": 0.0,
            "bos_token_id": 50281,
            "classifier_activation": "gelu",
            "classifier_bias": False,
            "classifier_dropout": 0.0,
            "classifier_pooling": "mean",
            "cls_token_id": 50281,
            "decoder_bias": True,
            "deterministic_flash_attn": False,
            "embedding_dropout": 0.0,
            "eos_token_id": 50282,
            "global_attn_every_n_layers": 3,
            "global_rope_theta": 160000.0,
            "gradient_checkpointing": False,
            "hidden_activation": "gelu",
            "hidden_size": 768,
            "initializer_cutoff_factor": 2.0,
            "initializer_range": 0.02,
            "intermediate_size": 1152,
            "layer_norm_eps": 1e-05,
            "local_attention": 128,
            "local_rope_theta": 10000.0,
            "max_position_embeddings": 8192,
            "mlp_bias": False,
            "mlp_dropout": 0.0,
            "model_type": "modernbert",
            "norm_bias": False,
            "norm_eps": 1e-05,
            "num_attention_heads": 12,
            "num_hidden_layers": 22,
            "pad_token_id": 50283,
            "position_embedding_type": "absolute",
            "sep_token_id": 50282,
            "tie_word_embeddings": True,
            "torch_dtype": "float32",
            "vocab_size": 50368,
        },
        149_655_232,
    ),
    "gpt2": (
        {
            **GPT,
            "activation_function": "gelu_new",
            "bos_token_id": 50256,
            "eos_token_id": 50256,
            "model_type": "gpt2",
            "n_ctx": 1024,
            "n_positions": 1024,
            "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}},
            "vocab_size": 50257,
        },
        124_439_808,
    ),
    "openai-gpt": (
        {
            **GPT,
            "afn": "gelu",
            "model_type": "openai-gpt",
            "n_ctx": 512,
            "n_positions": 512,
            "n_special": 0,
            "predict_special_tokens": True,
            "vocab_size": 40478,
        },
        116_534_784,
    ),
    "t5-small": (T5, 60_506_624),
    "t5-v1_1-small": (
        {
            **T5,
            "d_ff": 1024,
            "feed_forward_proj": "gated-gelu",
            "num_decoder_layers": 8,
            "num_heads": 6,
            "num_layers": 8,
            "tie_word_embeddings": False,
        },
        None,
    ),
    "xlnet-base-cased": (
        {
            "attn_type": "bi",
            "bi_data": False,
            "bos_token_id": 1,
            "clamp_len": -1,
            "d_head": 64,
            "d_inner": 3072,
            "d_model": 768,
            "dropout": 0.1,
            "end_n_top": 5,
            "eos_token_id": 2,
            "ff_activation": "gelu",
            "initializer_range": 0.02,
            "layer_norm_eps": 1e-12,
            "mem_len": None,
            "model_type": "xlnet",
            "n_head": 12,
            "n_layer": 12,
            "pad_token_id": 5,
            "reuse_len": None,
            "same_length": False,
            "start_n_top": 5,
            "summary_activation": "tanh",
            "summary_last_dropout": 0.1,
            "summary_type": "last",
            "summary_use_proj": True,
            "untie_r": True,
            "vocab_size": 32000,
        },
        None,
    ),
}


def vocab_of(size: int) -> Vocab:
    special = {token: n for n, token in enumerate(NAMES)}
    none = np.zeros(size, dtype=bool)
    return Vocab(size, special, np.zeros(0, dtype=np.int64), none, ~none)


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_published_configs_are_known_and_give_the_published_size(name: str) -> None:
    keys, size = PUBLISHED[name]
    hf_config = HFConfig(keys)
    family = family_of(hf_config)
    table = family.model(hf_config, {})
    hf_config.require_all_known(family.keys.supported, family.keys.ignored)
    recipe = config.build(
        Recipe,
        {
            "model": table,
            "objective": family.objective({}, {}),
            "layout": family.names.layout,
            "packing": {"kind": "documents", **family.packing(table, {})},
        },
    )
    with torch.device("meta"):
        parameters = recipe.build(vocab_of(keys["vocab_size"])).count_parameters()
    assert size is None or parameters == size


@pytest.mark.parametrize(
    ("positions", "lengths"), [(4096, None), (2048, "of 1,024 tokens"), (512, None)]
)
def test_bigbird_notes_the_lengths_with_other_random_blocks(
    positions: int, lengths: str | None
) -> None:
    """As found by drawing with `tests/oracles/test_attentions.py` at other numbers of positions."""
    model = f"model.position={{kind='learned', length={positions}}}"
    recipe = load_recipe("bigbird_base", [model, f"packing.length={min(positions, 512)}"])
    _, *more = BigBird().differences(recipe).notes
    assert len(more) == (lengths is not None)
    assert lengths is None or lengths in more[0]
