"""BigBird: `BigBirdForMaskedLM`, BERT with block-sparse attention."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from torch import Tensor

from foreword.interop.hf import _encoder as encoder
from foreword.interop.hf._contract import (
    TOKEN_HEADS,
    Design,
    Family,
    ParameterMap,
    PublishedHead,
    SettingMap,
    Table,
)
from foreword.interop.hf_config import HFConfig
from foreword.nn.attentions import bigbird
from foreword.types import Vocab

# The blocks of their code: three in the window, one at each end, random ones from the row's start.
BLOCKS = MappingProxyType({"kind": "bigbird", "window": 3, "ends": 1, "random_from": "start"})


@dataclass(frozen=True)
class BigBird(Family):
    """BigBird (Zaheer et al. 2020): an encoder for long texts.

    Rows too short to leave anything out give equal logits; in longer ones theirs attends, outside
    of training, to the first block instead of random ones.
    """

    architecture = "BigBirdForMaskedLM"
    layout = "encoder"
    prefix = "bert."
    embedding = "bert.embeddings.word_embeddings.weight"
    linear_heads = TOKEN_HEADS
    setting_maps = (
        *encoder.SETTING_MAPS,
        SettingMap("activation", "hidden_act", "gelu_new", encoder.ACTIVATIONS),
        SettingMap("position.length", "max_position_embeddings", 4096),
        encoder.SEGMENTS,
    )
    fixed = encoder.FIXED
    supported_values = MappingProxyType(
        {
            **encoder.SUPPORTED_VALUES,
            "rescale_embeddings": False,
            "use_bias": True,
            "norm_type": "postnorm",
        }
    )
    dropout_keys = ("hidden_dropout_prob", "attention_probs_dropout_prob")
    roles = MappingProxyType(
        {"pad_token": "<pad>", "unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    )

    def model(self, hf_config: HFConfig, weights: Mapping[str, Tensor]) -> Table:
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

    def describe(self, design: Design, vocab: Vocab) -> Table:
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

    def objective(self, weights: Mapping[str, Tensor]) -> Table:
        return {"kind": "masked"}

    def packing(self, table: Table, weights: Mapping[str, Tensor]) -> Table:
        """Return rows of one text between [CLS] and [SEP]."""
        return encoder.document_packing(table)

    def parameter_maps(self, design: Design, vocab: Vocab) -> Iterator[ParameterMap]:
        """Yield the mapping of each parameter, by BERT's names."""
        yield from encoder.backbone(design, self.prefix)
        yield encoder.position(self.prefix)
        yield encoder.segment(self.prefix)
        yield from encoder.bert_head()

    def classifier(self, design: Design) -> PublishedHead:
        """Return the class whose head reads the first state; its pooler is not read."""
        return PublishedHead(
            "BigBirdForSequenceClassification",
            "classifier.out_proj",
            hidden_layer=design.model.activation,
            dense="classifier.dense",
            unread=_pooler(design),
        )

    def checked_length(self, design: Design, length: int) -> int:
        """Return the tokens of a text that random blocks leave whole."""
        attention = design.model.attention
        if not getattr(attention, "random", 0):
            return length
        return min(length, int(attention.least_blocks * attention.block))

    def published_head(self, design: Design, auto_class: str) -> PublishedHead | None:
        """Return the class; a head on the states of tokens does not read the pooler."""
        head = super().published_head(design, auto_class)
        if head is None or auto_class not in self.linear_heads:
            return head
        return replace(head, unread=_pooler(design))

    def choice_head(self, design: Design) -> PublishedHead:
        """Return the class whose head reads the pooler of the first state."""
        return PublishedHead(
            "BigBirdForMultipleChoice", "classifier", hidden_layer="tanh", dense="bert.pooler"
        )

    def tied_tensors(self, design: Design) -> Mapping[str, str]:
        """Return the output layer, which is tied to the embedding."""
        return encoder.bert_copies(self.embedding)

    def is_buffer(self, name: str) -> bool:
        """Return whether it is the buffer of position ids."""
        return name == "bert.embeddings.position_ids"

    def notes(self, design: Design) -> tuple[str, ...]:
        """Return how random blocks differ in `transformers`."""
        attention = design.model.attention
        if not isinstance(attention, bigbird.BigBird) or not attention.random:
            return ()
        full, limit = attention.least_blocks * attention.block, design.model.limit
        notes = (
            f"in texts of more than {full:,} tokens, transformers attends outside of training to "
            "the first block instead of random ones, and so gives other numbers",
        )
        differing = [f"{length:,}" for length in bigbird.PAPER if full < length <= limit]
        if not differing or limit == max(bigbird.PAPER):
            return notes
        return (
            *notes,
            f"in training on texts of {' or '.join(differing)} tokens, transformers samples other "
            "blocks: its samples depend on the model's number of positions, and agree at "
            f"{max(bigbird.PAPER):,}",
        )

    def dropped_tensors(self, names: Iterable[str]) -> list[str]:
        """Return the tensors of the pooler and the second head."""
        return [n for n in names if n.startswith(("bert.pooler.", "cls.seq_relationship."))]


def _pooler(design: Design) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the pooler's tensors."""
    width = design.model.d_model
    return {"bert.pooler.weight": (width, width), "bert.pooler.bias": (width,)}
