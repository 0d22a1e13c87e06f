"""Small models of `transformers` with random weights and a tokenizer, one for each family."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
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


def _bert(transformers: Any, heads: str = "MaskedLM") -> nn.Module:
    return getattr(transformers, f"BertFor{heads}")(
        transformers.BertConfig(
            vocab_size=SIZE,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=80,
            max_position_embeddings=LENGTH,
        )
    )


def _gpt2(transformers: Any) -> nn.Module:
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=SIZE,
            n_embd=32,
            n_layer=2,
            n_head=4,
            n_positions=LENGTH,
            bos_token_id=0,
            eos_token_id=0,
        )
    )


def _llama(transformers: Any, **settings: Any) -> nn.Module:
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=SIZE,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=48,
            max_position_embeddings=LENGTH,
            bos_token_id=0,
            eos_token_id=0,
            **settings,
        )
    )


def _roberta(transformers: Any) -> nn.Module:
    return transformers.RobertaForMaskedLM(
        transformers.RobertaConfig(
            vocab_size=SIZE,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=80,
            max_position_embeddings=LENGTH + 2,
            type_vocab_size=1,
            pad_token_id=1,
        )
    )


def _openai_gpt(transformers: Any) -> nn.Module:
    return transformers.OpenAIGPTLMHeadModel(
        transformers.OpenAIGPTConfig(
            vocab_size=SIZE, n_embd=32, n_layer=2, n_head=4, n_positions=LENGTH
        )
    )


def _t5(transformers: Any, **settings: Any) -> nn.Module:
    return transformers.T5ForConditionalGeneration(
        transformers.T5Config(
            vocab_size=SIZE,
            d_model=32,
            d_kv=6,
            d_ff=48,
            num_layers=2,
            num_decoder_layers=3,
            num_heads=4,
            decoder_start_token_id=0,
            **settings,
        )
    )


def _t5_1_1(transformers: Any) -> nn.Module:
    model = _t5(transformers, feed_forward_proj="gated-gelu", tie_word_embeddings=False)
    model.lm_head.weight = nn.Parameter(torch.empty(SIZE, 32))  # tied on construction
    return model


def _albert(transformers: Any, heads: str = "MaskedLM") -> nn.Module:
    return getattr(transformers, f"AlbertFor{heads}")(
        transformers.AlbertConfig(
            vocab_size=SIZE,
            embedding_size=16,
            hidden_size=32,
            num_hidden_layers=3,
            num_attention_heads=4,
            intermediate_size=80,
            max_position_embeddings=LENGTH,
            hidden_act="gelu_new" if heads == "PreTraining" else "gelu",
        )
    )


def _electra(transformers: Any, heads: str = "PreTraining", share: int = 1) -> nn.Module:
    return getattr(transformers, f"ElectraFor{heads}")(
        transformers.ElectraConfig(
            vocab_size=SIZE,
            embedding_size=16,
            hidden_size=32 // share,
            num_hidden_layers=2,
            num_attention_heads=4 // share,
            intermediate_size=80 // share,
            max_position_embeddings=LENGTH,
        )
    )


def _xlnet(transformers: Any) -> nn.Module:
    return transformers.XLNetLMHeadModel(
        transformers.XLNetConfig(
            vocab_size=SIZE, d_model=32, n_layer=2, n_head=4, d_inner=80, mem_len=None
        )
    )


def _big_bird(transformers: Any, kind: str = "block_sparse") -> nn.Module:
    return transformers.BigBirdForMaskedLM(
        transformers.BigBirdConfig(
            vocab_size=SIZE,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=80,
            max_position_embeddings=LENGTH,
            attention_type=kind,
            block_size=4,
            num_random_blocks=2,
            sep_token_id=3,
        )
    )


def _modernbert(transformers: Any, **settings: Any) -> nn.Module:
    return transformers.ModernBertForMaskedLM(
        transformers.ModernBertConfig(
            vocab_size=SIZE,
            hidden_size=32,
            num_hidden_layers=4,
            num_attention_heads=4,
            intermediate_size=48,
            max_position_embeddings=LENGTH,
            local_attention=8,
            pad_token_id=0,
            cls_token_id=2,
            bos_token_id=2,
            sep_token_id=3,
            eos_token_id=3,
            **settings,
        )
    )


def _longformer(transformers: Any) -> nn.Module:
    return transformers.LongformerForMaskedLM(
        transformers.LongformerConfig(
            vocab_size=SIZE,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=80,
            max_position_embeddings=LENGTH + 2,
            type_vocab_size=1,
            pad_token_id=1,
            attention_window=8,
        )
    )


# A file of `interop/hf/`, perhaps a version of it: how to make theirs, and its special tokens.
FAMILIES: dict[str, tuple[Callable[[Any], nn.Module], dict[str, str]]] = {
    "albert": (_albert, BERT),
    "albert-pretraining": (partial(_albert, heads="PreTraining"), BERT),
    "bert": (_bert, BERT),
    "bert-pretraining": (partial(_bert, heads="PreTraining"), BERT),
    "big_bird": (_big_bird, BERT),
    "big_bird-full": (partial(_big_bird, kind="original_full"), BERT),
    "electra": (_electra, BERT),
    "electra-generator": (partial(_electra, heads="MaskedLM"), BERT),
    "electra-small-generator": (partial(_electra, heads="MaskedLM", share=2), BERT),
    "gpt2": (_gpt2, GPT),
    "llama": (_llama, GPT),
    "llama-tied": (partial(_llama, tie_word_embeddings=True, head_dim=6), GPT),
    "openai_gpt": (_openai_gpt, {"unk_token": "<unk>"}),
    "longformer": (_longformer, ROBERTA),
    "modernbert": (_modernbert, BERT),
    "modernbert-full": (partial(_modernbert, layer_types=["full_attention"] * 4), BERT),
    "modernbert-local": (partial(_modernbert, layer_types=["sliding_attention"] * 4), BERT),
    "modernbert-turns": (partial(_modernbert, global_attn_every_n_layers=2), BERT),
    "roberta": (_roberta, ROBERTA),
    "t5": (_t5, T5),
    "t5-1.1": (_t5_1_1, T5),
    "xlnet": (_xlnet, ROBERTA),
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

    make, roles = FAMILIES[family]
    model = make(transformers).eval()
    weights.randomise(model, seed=7)
    with torch.no_grad():  # what no text reaches, and what is published as 0
        for name, parameter in model.named_parameters():
            if roles is ROBERTA and "position_embeddings" in name:
                parameter[:2] = 0
            if roles is ROBERTA and "token_type" in name:
                parameter.zero_()
    model.save_pretrained(folder)
    write_tokenizer(folder, roles)
    return model
