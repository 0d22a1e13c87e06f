"""Small models of `transformers` with random weights and a tokenizer, one for each family."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import nn

from tests.oracles import weights

SIZE, LENGTH = 130, 40  # tokens, and positions
WORDS = [f"w{n}" for n in range(SIZE - 7)]

# Special tokens by role, in the order of their ids.
BERT = {
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
}
ROBERTA = {
    "cls_token": "<s>",
    "pad_token": "<pad>",
    "sep_token": "</s>",
    "unk_token": "<unk>",
    "mask_token": "<mask>",
    "bos_token": "<s>",
    "eos_token": "</s>",
}
T5 = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
GPT = {"unk_token": "<|endoftext|>", "bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"}
# Sizes under the names that most families give them, and under those of GPT.
NAMED = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 80,
    "max_position_embeddings": LENGTH,
}
OFFSET = {"max_position_embeddings": LENGTH + 2, "type_vocab_size": 1, "pad_token_id": 1}
ENDS = {"bos_token_id": 0, "eos_token_id": 0}
N_NAMED = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": LENGTH}
ALBERT = NAMED | {"embedding_size": 16, "num_hidden_layers": 3}
ELECTRA = NAMED | {"embedding_size": 16}
SMALL = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 40}
BIG_BIRD = NAMED | {"block_size": 4, "num_random_blocks": 2, "sep_token_id": 3}
LLAMA = NAMED | ENDS | {"intermediate_size": 48}
QWEN3 = LLAMA | {"num_key_value_heads": 4, "head_dim": 6}
QWEN3_5 = QWEN3 | {
    "num_hidden_layers": 3,
    "layer_types": ["linear_attention", "full_attention", "linear_attention"],
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 2,
    "linear_key_head_dim": 6,
    "linear_value_head_dim": 10,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 5e3,
        "partial_rotary_factor": 1.0,
    },
}
MODERNBERT = NAMED | {
    "num_hidden_layers": 4,
    "intermediate_size": 48,
    "local_attention": 8,
    "pad_token_id": 0,
    "cls_token_id": 2,
    "bos_token_id": 2,
    "sep_token_id": 3,
    "eos_token_id": 3,
}
LONGFORMER = NAMED | OFFSET | {"attention_window": 8}
T5_SIZES = {
    "d_model": 32,
    "d_kv": 6,
    "d_ff": 48,
    "num_layers": 2,
    "num_decoder_layers": 3,
    "num_heads": 4,
    "decoder_start_token_id": 0,
}
T5_1_1 = T5_SIZES | {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
XLNET = {"d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 80, "mem_len": None}

# A file of `interop/hf/`, perhaps a version of it: their class, its settings, its special tokens.
FAMILIES: dict[str, tuple[str, dict[str, Any], dict[str, str]]] = {
    "albert": ("AlbertForMaskedLM", ALBERT | {"hidden_act": "gelu"}, BERT),
    "albert-pretraining": ("AlbertForPreTraining", ALBERT | {"hidden_act": "gelu_new"}, BERT),
    "bert": ("BertForMaskedLM", NAMED, BERT),
    "bert-pretraining": ("BertForPreTraining", NAMED, BERT),
    "big_bird": ("BigBirdForMaskedLM", BIG_BIRD | {"attention_type": "block_sparse"}, BERT),
    "big_bird-full": ("BigBirdForMaskedLM", BIG_BIRD | {"attention_type": "original_full"}, BERT),
    "electra": ("ElectraForPreTraining", ELECTRA, BERT),
    "electra-generator": ("ElectraForMaskedLM", ELECTRA, BERT),
    "electra-small-generator": ("ElectraForMaskedLM", ELECTRA | SMALL, BERT),
    "gpt2": ("GPT2LMHeadModel", N_NAMED | ENDS, GPT),
    "llama": ("LlamaForCausalLM", LLAMA, GPT),
    "llama-tied": ("LlamaForCausalLM", LLAMA | {"tie_word_embeddings": True, "head_dim": 6}, GPT),
    "openai_gpt": ("OpenAIGPTLMHeadModel", N_NAMED, {"unk_token": "<unk>"}),
    "longformer": ("LongformerForMaskedLM", LONGFORMER, ROBERTA),
    "modernbert": ("ModernBertForMaskedLM", MODERNBERT, BERT),
    "modernbert-full": (
        "ModernBertForMaskedLM",
        MODERNBERT | {"layer_types": ["full_attention"] * 4},
        BERT,
    ),
    "modernbert-local": (
        "ModernBertForMaskedLM",
        MODERNBERT | {"layer_types": ["sliding_attention"] * 4},
        BERT,
    ),
    "modernbert-turns": (
        "ModernBertForMaskedLM",
        MODERNBERT | {"global_attn_every_n_layers": 2},
        BERT,
    ),
    "qwen3": ("Qwen3ForCausalLM", QWEN3, GPT),
    "qwen3_5_text": ("Qwen3_5ForCausalLM", QWEN3_5, GPT),
    "roberta": ("RobertaForMaskedLM", NAMED | OFFSET, ROBERTA),
    "t5": ("T5ForConditionalGeneration", T5_SIZES, T5),
    "t5-1.1": ("T5ForConditionalGeneration", T5_1_1, T5),
    "xlnet": ("XLNetLMHeadModel", XLNET, ROBERTA),
}


def write_tokenizer(folder: Path, roles: dict[str, str]) -> None:
    """Words by number, and the special tokens first."""
    special = list(dict.fromkeys(roles.values()))
    words = [*special, *WORDS, *(f"v{n}" for n in range(7))][:SIZE]
    engine = Tokenizer(
        models.WordLevel({word: n for n, word in enumerate(words)}, roles["unk_token"])
    )
    engine.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    engine.add_special_tokens(special)
    engine.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", **roles})
    )


def write(family: str, folder: Path) -> nn.Module:
    """A model folder as `transformers` writes it; returns the model."""
    import transformers

    name, settings, roles = FAMILIES[family]
    kind = getattr(transformers, name)
    model: nn.Module = kind(kind.config_class(vocab_size=SIZE, **settings)).eval()
    if settings is T5_1_1:
        model.lm_head.weight = nn.Parameter(torch.empty(SIZE, 32))  # tied on construction
    weights.randomise(model, seed=7)
    with torch.no_grad():  # what no text reaches, and what is published as 0
        for name, parameter in model.named_parameters():
            if roles is ROBERTA and "position_embeddings" in name:
                parameter[:2] = 0
            if roles is ROBERTA and "token_type" in name:
                parameter.zero_()
            if settings is QWEN3_5 and "norm" in name and "linear_attn" not in name:
                parameter -= 1  # it is the distance from 1
    model.save_pretrained(folder)
    write_tokenizer(folder, roles)
    return model
