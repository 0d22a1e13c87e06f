"""BigBird: `BigBirdForMaskedLM`, BERT with block-sparse attention."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from torch import Tensor

from foreword.interop.hf import _contract as hf
from foreword.interop.hf import _encoder as encoder
from foreword.interop.hf_config import HFConfig
from foreword.nn.attentions import bigbird
from foreword.types import Vocab

# The blocks of their code: three in the window, one at each end, random ones from the row's start.
BLOCKS = MappingProxyType({"kind": "bigbird", "window": 3, "ends": 1, "random_from": "start"})


@dataclass(frozen=True)
class BigBird(hf.Family):
    """BigBird (Zaheer et al. 2020): an encoder for long texts.

    Rows too short to leave anything out give equal logits; in longer ones theirs attends, outside
    of training, to the first block instead of random ones.
    """

    names = encoder.names(
        "BigBirdForMaskedLM",
        "bert.",
        roles={
            "pad_token": "<pad>",
            "unk_token": "<unk>",
            "bos_token": "<s>",
            "eos_token": "</s>",
        },
        dropped=("bert.pooler.*", "cls.seq_relationship.*"),
    )
    keys = hf.ConfigKeys(
        maps=(
            *encoder.SETTING_MAPS,
            hf.SettingMap("activation", "hidden_act", "gelu_new", encoder.ACTIVATIONS),
            hf.SettingMap("position.length", "max_position_embeddings", 4096),
            encoder.SEGMENTS,
        ),
        fixed=encoder.FIXED,
        supported={
            **encoder.SUPPORTED_VALUES,
            "rescale_embeddings": False,
            "use_bias": True,
            "norm_type": "postnorm",
        },
        dropout=("hidden_dropout_prob", "attention_probs_dropout_prob"),
    )

    def model(self, hf_config: HFConfig, weights: Mapping[str, Tensor]) -> hf.Table:
        """Return the model with its block attention, if any."""
        table = super().model(hf_config, weights)
        kind = hf_config.get("attention_type", "block_sparse")
        block = hf_config.get("block_size", 64)
        random = hf_config.get("num_random_blocks", 3)
        if kind not in ("block_sparse", "original_full"):
            raise hf_config.refuse("attention_type", "block_sparse, original_full")
        if kind == "block_sparse":
            table["attention"] = {**BLOCKS, "block": block, "random": random}
        return table

    def describe(self, design: hf.Design, vocab: Vocab) -> hf.Table:
        """Return the config with block attention, or full attention."""
        attention = design.model.attention
        table = super().describe(design, vocab)
        if not isinstance(attention, bigbird.BigBird):
            return {**table, "attention_type": "original_full"}
        return {
            **table,
            "attention_type": "block_sparse",
            "block_size": attention.block,
            "num_random_blocks": attention.random,
        }

    def objective(self, weights: Mapping[str, Tensor], models: Mapping[str, hf.Table]) -> hf.Table:
        return {"kind": "masked"}

    def packing(self, table: hf.Table, weights: Mapping[str, Tensor]) -> hf.Table:
        """Return rows of one text between [CLS] and [SEP]."""
        return encoder.document_packing(table)

    def tensors(self, design: hf.Design, vocab: Vocab) -> hf.TensorMaps:
        """Return the tensors, by BERT's names."""
        maps = (
            *encoder.backbone(design, self.names.prefix),
            encoder.position(self.names.prefix),
            encoder.segment(self.names.prefix),
            *encoder.bert_head(),
        )
        return hf.TensorMaps(maps, tied=encoder.bert_copies(self.names.embedding))

    def heads(self, design: hf.Design) -> Mapping[str, hf.PublishedHead]:
        """Return the heads; those of texts and tokens do not read the pooler."""
        width = design.model.d_model
        unread = {"bert.pooler.weight": (width, width), "bert.pooler.bias": (width,)}
        return {
            "TokenClassification": hf.PublishedHead("classifier", unread=unread),
            "SequenceClassification": hf.PublishedHead(
                "classifier.out_proj",
                hidden_layer=design.model.activation,
                dense="classifier.dense",
                unread=unread,
            ),
            "MultipleChoice": hf.PublishedHead(
                "classifier", hidden_layer="tanh", dense="bert.pooler"
            ),
        }

    def differences(self, design: hf.Design) -> hf.Differences:
        """Return how random blocks differ, in texts that they do not leave whole."""
        attention = design.model.attention
        if not isinstance(attention, bigbird.BigBird) or not attention.random:
            return hf.Differences()
        full, limit = attention.least_blocks * attention.block, design.model.limit
        notes = [
            f"in texts of more than {full:,} tokens, transformers attends outside of training to "
            "the first block instead of random ones, and so gives other numbers"
        ]
        differing = [f"{length:,}" for length in bigbird.PAPER if full < length <= limit]
        if differing and limit != max(bigbird.PAPER):
            notes.append(
                f"in training on texts of {' or '.join(differing)} tokens, transformers samples "
                "other blocks: its samples depend on the model's number of positions, and agree at "
                f"{max(bigbird.PAPER):,}"
            )
        return hf.Differences(tuple(notes), full)
