"""ELECTRA: `ElectraForPreTraining`, the discriminator, and `ElectraForMaskedLM`, the generator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from torch import Tensor, nn

from foreword.interop.hf import _contract as hf
from foreword.interop.hf import _encoder as encoder
from foreword.interop.hf_config import HFConfig
from foreword.nn.model import Backbone, Model
from foreword.objectives.masked import Masked
from foreword.objectives.replaced_token import ReplacedToken
from foreword.types import Vocab

DISCRIMINATOR_HEAD = {"0": "dense", "2": "dense_prediction"}


@dataclass(frozen=True)
class ELECTRA(hf.Family):
    """ELECTRA (Clark et al. 2020): detects the tokens that a smaller model replaced.

    The two are published apart. A folder that holds both has the discriminator, which is
    fine-tuned, and in `generator/` the generator that was trained with it; exports have this form.
    A discriminator alone is imported with `unigram` replacements, which need no generator.
    """

    names = encoder.names(
        "ElectraForMaskedLM",
        "electra.",
        subfolders=("generator",),
    )
    keys = hf.ConfigKeys(
        maps=(*encoder.SETTING_MAPS, encoder.ACTIVATION, encoder.POSITIONS, encoder.SEGMENTS),
        fixed=encoder.FIXED,
        supported={**encoder.SUPPORTED_VALUES, "summary_use_proj": True},
        ignored=("summary_activation", "summary_last_dropout", "summary_type"),
    )

    def model(self, hf_config: HFConfig, weights: Mapping[str, Tensor]) -> hf.Table:
        """Return the model, with narrow embeddings if it has them."""
        table = super().model(hf_config, weights)
        width = hf_config.get("embedding_size", 128)
        return table if width == table["d_model"] else {**table, "d_embedding": width}

    def describe(self, design: hf.Design, vocab: Vocab) -> hf.Table:
        """Return the config, always with the width of the embeddings."""
        width = design.model.embedding_width
        return {**super().describe(design, vocab), "embedding_size": width}

    def architecture_of(self, design: hf.Design) -> str:
        """Return the class of the discriminator or of the generator."""
        is_discriminator = isinstance(design.objective, ReplacedToken)
        return "ElectraForPreTraining" if is_discriminator else self.names.architecture

    def objective(self, weights: Mapping[str, Tensor], models: Mapping[str, hf.Table]) -> hf.Table:
        """Return the objective of the head in the file; a generator's size is a share of ours."""
        if "discriminator_predictions.dense.weight" not in weights:
            return {"kind": "masked"}
        if "generator" not in models:
            return {"kind": "replaced_token", "replacements": "unigram"}
        share = models["generator"]["d_model"] / models[""]["d_model"]
        return {"kind": "replaced_token", "generator": share}

    def packing(self, table: hf.Table, weights: Mapping[str, Tensor]) -> hf.Table:
        """Return rows of one text between [CLS] and [SEP]."""
        return encoder.document_packing(table)

    def folders(self, model: Model, design: hf.Design) -> Mapping[str, tuple[Model, hf.Design]]:
        """Return the discriminator, with the generator in a subfolder."""
        objective = design.objective
        if not isinstance(objective, ReplacedToken) or objective.replacements != "generator":
            return super().folders(model, design)
        recipe: Any = design
        backbone = cast(Backbone, model.heads["generator"])
        generator = Model(backbone, nn.ModuleDict({"token": model.heads["token"]}))
        heads = nn.ModuleDict({"replaced": model.heads["replaced"]})
        discriminator = Model(model.backbone, heads)
        return {
            "": (
                discriminator,
                replace(recipe, objective=replace(objective, replacements="unigram")),
            ),
            "generator": (
                generator,
                replace(recipe, model=backbone.settings, objective=Masked(random=0.0)),
            ),
        }

    def tensors(self, design: hf.Design, vocab: Vocab) -> hf.TensorMaps:
        """Return the tensors of the discriminator or the generator."""
        prefix = self.names.prefix
        maps = [
            *encoder.backbone(design, prefix),
            encoder.position(prefix),
            encoder.segment(prefix),
        ]
        if design.model.d_embedding:
            projection = {"projection": "embeddings_project"}
            maps += hf.map_each(projection, "backbone.embedding.", prefix)
        if isinstance(design.objective, ReplacedToken):
            maps += hf.map_each(DISCRIMINATOR_HEAD, "heads.replaced.", "discriminator_predictions.")
        else:
            head = "generator_predictions"
            maps += encoder.head(f"{head}.dense", f"{head}.LayerNorm", "generator_lm_head.bias")
        return hf.TensorMaps(tuple(maps), tied={"generator_lm_head.weight": self.names.embedding})

    def heads(self, design: hf.Design) -> Mapping[str, hf.PublishedHead]:
        """Return linear maps of tokens, and heads that read the first state or its summary."""
        return {
            **hf.LINEAR_HEADS,
            "SequenceClassification": hf.PublishedHead(
                "classifier.out_proj", hidden_layer="gelu", dense="classifier.dense"
            ),
            "MultipleChoice": hf.PublishedHead(
                "classifier",
                hidden_layer="gelu",
                dense="sequence_summary.summary",
                config={"summary_type": "first", "summary_activation": "gelu"},
            ),
        }

    def differences(self, design: hf.Design) -> hf.Differences:
        """Return a note on the part left out: the head that corrects, or the generator."""
        objective = design.objective
        if isinstance(objective, ReplacedToken) and objective.correction:
            note = "the head that corrects replaced tokens is left out; transformers has none"
            return hf.Differences((note,))
        if not isinstance(objective, ReplacedToken) or objective.replacements == "generator":
            return hf.Differences()
        note = (
            "a discriminator without its generator: pretraining continues with replacements "
            f"sampled from the text (objective.replacements={objective.replacements}); put "
            "the generator into a subfolder generator/ to import both"
        )
        return hf.Differences((note,))
