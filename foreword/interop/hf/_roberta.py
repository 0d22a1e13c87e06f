"""The parts that RoBERTa and Longformer share: positions begin after that of padding."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from foreword.interop.hf import _contract as hf
from foreword.interop.hf import _encoder as encoder
from foreword.interop.hf_config import HFConfig
from foreword.nn.positions.learned import Learned
from foreword.types import Vocab


def names(model: str, prefix: str, *dropped: str) -> hf.FamilyNames:
    """Return the names of a family, given the stem of its classes and its prefix."""
    roles = {
        "pad_token": "<pad>",
        "unk_token": "<unk>",
        "cls_token": "<s>",
        "sep_token": "</s>",
        "mask_token": "<mask>",
        "bos_token": "<s>",
        "eos_token": "</s>",
    }
    patterns = (f"{prefix}pooler.*", *dropped)
    return encoder.names(f"{model}ForMaskedLM", prefix, roles=roles, dropped=patterns)


class LikeRoberta(hf.Family):
    """BERT without segments.

    The first position is row `pad_token_id + 1` of their table; the rows before it are exported as
    0. Their single segment is 0 in the published models, and then our model has none.
    """

    keys = hf.ConfigKeys(
        maps=(*encoder.SETTING_MAPS, encoder.ACTIVATION),
        fixed=encoder.FIXED,
        supported=encoder.SUPPORTED_VALUES,
    )

    @property
    def _segment(self) -> str:
        return f"{self.names.prefix}embeddings.token_type_embeddings.weight"

    def model(self, hf_config: HFConfig, weights: Mapping[str, Tensor]) -> hf.Table:
        """Return the model without unused positions and segments."""
        table = super().model(hf_config, weights)
        skipped = hf_config.get("pad_token_id", 1) + 1
        table["position"]["length"] = hf_config.get("max_position_embeddings", 512) - skipped
        segments = hf_config.get("type_vocab_size", 2)
        is_none = segments == 1 and not weights.get(self._segment, encoder.NOTHING).any()
        table["segments"] = 0 if is_none else segments
        return table

    def describe(self, design: hf.Design, vocab: Vocab) -> hf.Table:
        """Return the config, counting the positions before the first."""
        pad, position = vocab.id("[PAD]"), design.model.position
        length = position.length if isinstance(position, Learned) else None
        return {
            **super().describe(design, vocab),
            **({} if length is None else {"max_position_embeddings": length + pad + 1}),
            "pad_token_id": pad,
            "type_vocab_size": max(design.model.segments, 1),
        }

    def objective(self, weights: Mapping[str, Tensor], models: Mapping[str, hf.Table]) -> hf.Table:
        return {"kind": "masked"}

    def packing(self, table: hf.Table, weights: Mapping[str, Tensor]) -> hf.Table:
        """Return rows of one text between <s> and </s>."""
        return encoder.document_packing(table)

    def tensors(self, design: hf.Design, vocab: Vocab) -> hf.TensorMaps:
        """Return the tensors; their one segment is 0 if we have none."""
        prefix, segments = self.names.prefix, design.model.segments
        maps = [
            *encoder.backbone(design, prefix),
            encoder.position(prefix, skipped=vocab.id("[PAD]") + 1),
            *encoder.head("lm_head.dense", "lm_head.layer_norm", "lm_head.bias"),
        ]
        maps += [encoder.segment(prefix)] if segments else []
        return hf.TensorMaps(
            tuple(maps),
            tied={
                "lm_head.decoder.weight": self.names.embedding,
                "lm_head.decoder.bias": "lm_head.bias",
            },
            zeros={} if segments else {self._segment: (1, design.model.d_model)},
        )

    def heads(self, design: hf.Design) -> Mapping[str, hf.PublishedHead]:
        """Return linear maps of tokens, and heads that read the first state or its pooler."""
        dense = f"{self.names.prefix}pooler.dense"
        return {
            **hf.LINEAR_HEADS,
            "SequenceClassification": hf.PublishedHead(
                "classifier.out_proj", hidden_layer="tanh", dense="classifier.dense"
            ),
            "MultipleChoice": hf.PublishedHead("classifier", hidden_layer="tanh", dense=dense),
        }

    def differences(self, design: hf.Design) -> hf.Differences:
        """Return how padding within a text differs."""
        note = (
            "transformers reads the name of the padding token within a text as padding, and "
            "numbers the positions after it differently; with split_special_tokens=True its "
            "tokenizer reads the name as text"
        )
        return hf.Differences((note,))
