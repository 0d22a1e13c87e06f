"""The parts that RoBERTa and Longformer share: positions begin after that of padding."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

from torch import Tensor

from foreword.interop.hf import _encoder as encoder
from foreword.interop.hf._contract import (
    LINEAR_HEADS,
    Design,
    Family,
    ParameterMap,
    PublishedHead,
    Table,
)
from foreword.interop.hf_config import HFConfig
from foreword.nn.positions.learned import Learned
from foreword.types import Vocab


class LikeRoberta(Family):
    """BERT without segments.

    The first position is row `pad_token_id + 1` of their table; the rows before it are exported as
    0. Their single segment is 0 in the published models, and then our model has none.
    """

    layout = "encoder"
    linear_heads = LINEAR_HEADS
    setting_maps = (*encoder.SETTING_MAPS, encoder.ACTIVATION)
    fixed = encoder.FIXED
    supported_values = encoder.SUPPORTED_VALUES
    roles = MappingProxyType(
        {
            "pad_token": "<pad>",
            "unk_token": "<unk>",
            "cls_token": "<s>",
            "sep_token": "</s>",
            "mask_token": "<mask>",
            "bos_token": "<s>",
            "eos_token": "</s>",
        }
    )

    @property
    def _segment(self) -> str:
        return f"{self.prefix}embeddings.token_type_embeddings.weight"

    def model(self, hf_config: HFConfig, weights: Mapping[str, Tensor]) -> Table:
        """Return the model without unused positions and segments."""
        table = super().model(hf_config, weights)
        skipped = hf_config.get("pad_token_id", 1) + 1
        table["position"]["length"] = hf_config.get("max_position_embeddings", 512) - skipped
        segments = hf_config.get("type_vocab_size", 2)
        is_none = segments == 1 and not weights.get(self._segment, encoder.NOTHING).any()
        table["segments"] = 0 if is_none else segments
        return table

    def describe(self, design: Design, vocab: Vocab) -> Table:
        """Return the config, counting the positions before the first."""
        pad, position = vocab.id("[PAD]"), design.model.position
        length = position.length if isinstance(position, Learned) else None
        return {
            **super().describe(design, vocab),
            **({} if length is None else {"max_position_embeddings": length + pad + 1}),
            "pad_token_id": pad,
            "type_vocab_size": max(design.model.segments, 1),
        }

    def objective(self, weights: Mapping[str, Tensor]) -> Table:
        return {"kind": "masked"}

    def packing(self, table: Table, weights: Mapping[str, Tensor]) -> Table:
        """Return rows of one text between <s> and </s>."""
        return encoder.document_packing(table)

    def parameter_maps(self, design: Design, vocab: Vocab) -> Iterator[ParameterMap]:
        yield from encoder.backbone(design, self.prefix)
        yield encoder.position(self.prefix, skipped=vocab.id("[PAD]") + 1)
        if design.model.segments:
            yield encoder.segment(self.prefix)
        yield from encoder.head("lm_head.dense", "lm_head.layer_norm", "lm_head.bias")

    def zero_tensors(self, design: Design) -> Mapping[str, tuple[int, ...]]:
        """Return their one segment if we have none."""
        return {} if design.model.segments else {self._segment: (1, design.model.d_model)}

    def classifier(self, design: Design) -> PublishedHead:
        """Return the class whose head reads the first state."""
        architecture = self.architecture.replace("MaskedLM", "SequenceClassification")
        return PublishedHead(
            architecture, "classifier.out_proj", hidden_layer="tanh", dense="classifier.dense"
        )

    def choice_head(self, design: Design) -> PublishedHead:
        """Return the class whose head reads the pooler of the first state."""
        architecture = self.classifier(design).of("MultipleChoice").architecture
        dense = f"{self.prefix}pooler.dense"
        return PublishedHead(architecture, "classifier", hidden_layer="tanh", dense=dense)

    def tied_tensors(self, design: Design) -> Mapping[str, str]:
        """Return the output layer, which is tied to the embedding."""
        return {"lm_head.decoder.weight": self.embedding, "lm_head.decoder.bias": "lm_head.bias"}

    def is_buffer(self, name: str) -> bool:
        """Return whether it is the buffer of position ids."""
        return name == f"{self.prefix}embeddings.position_ids"

    def notes(self, design: Design) -> tuple[str, ...]:
        """Return how padding within a text differs in `transformers`."""
        return (
            "transformers reads the name of the padding token within a text as padding, and "
            "numbers the positions after it differently; with split_special_tokens=True its "
            "tokenizer reads the name as text",
        )

    def dropped_tensors(self, names: Iterable[str]) -> list[str]:
        """Return the tensors of the pooler."""
        return [name for name in names if name.startswith(f"{self.prefix}pooler.")]
