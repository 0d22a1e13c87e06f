"""ELECTRA: `ElectraForPreTraining`, the discriminator, and `ElectraForMaskedLM`, the generator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, cast

from torch import Tensor, nn

from foreword.interop.family import Design, Family, ParameterMap, Table, map_each
from foreword.interop.hf import _encoder as encoder
from foreword.interop.hf_config import HFConfig
from foreword.nn.model import Backbone, Model
from foreword.objectives.masked import Masked
from foreword.objectives.replaced_token import ReplacedToken
from foreword.types import Vocab

JUDGE = {"0": "dense", "2": "dense_prediction"}


@dataclass(frozen=True)
class ELECTRA(Family):
    """ELECTRA (Clark et al. 2020): a model that says which tokens a smaller one replaced.

    The two are published apart. A folder that holds both has the discriminator, which is what
    fine-tuning goes on from, and in `generator/` the generator that was trained with it; so ours
    are written. A discriminator alone is imported with the fakes of `unigram`, which need none.
    """

    architecture = "ElectraForMaskedLM"
    layout = "encoder"
    prefix = "electra."
    embedding = "electra.embeddings.word_embeddings.weight"
    names = (*encoder.NAMES, encoder.ACTIVATION, encoder.PLACES, encoder.SEGMENTS)
    fixed = encoder.FIXED
    neutral = MappingProxyType({**encoder.NEUTRAL, "summary_use_proj": True})
    idle = ("summary_activation", "summary_last_dropout", "summary_type")
    beside = ("generator",)

    def model(self, hf_config: HFConfig, weights: Mapping[str, Tensor]) -> Table:
        """With narrow embeddings, where they are."""
        table = super().model(hf_config, weights)
        width = hf_config.take("embedding_size", 128)
        return table if width == table["d_model"] else {**table, "d_embedding": width}

    def describe(self, design: Design, vocab: Vocab) -> Table:
        """The width of the embeddings is always said."""
        width = design.model.embedding_width
        return {**super().describe(design, vocab), "embedding_size": width}

    def architecture_of(self, design: Design) -> str:
        """Which of the two it is."""
        judges = isinstance(design.objective, ReplacedToken)
        return "ElectraForPreTraining" if judges else self.architecture

    def objective(self, weights: Mapping[str, Tensor]) -> Table:
        """What the head that is there was trained for."""
        if "discriminator_predictions.dense.weight" in weights:
            return {"kind": "replaced_token", "replacements": "unigram"}
        return {"kind": "masked"}

    def join(self, objective: Table, models: Mapping[str, Table]) -> Table:
        """With fakes that the generator draws, where it is there: its size is a share of ours."""
        if "generator" not in models or objective["kind"] != "replaced_token":
            return objective
        share = models["generator"]["d_model"] / models[""]["d_model"]
        return {"kind": "replaced_token", "generator": share}

    def packing(self, table: Table, weights: Mapping[str, Tensor]) -> Table:
        """A text between [CLS] and [SEP]."""
        return encoder.wrapped(table)

    def parts(self, model: Model, design: Design) -> Mapping[str, tuple[Model, Design]]:
        """The discriminator, and beside it the generator."""
        objective = design.objective
        if not isinstance(objective, ReplacedToken) or objective.replacements != "generator":
            return super().parts(model, design)
        recipe: Any = design
        generator = cast(Backbone, model.heads["generator"])
        writes = Model(generator, nn.ModuleDict({"token": model.heads["token"]}))
        judges = Model(model.backbone, nn.ModuleDict({"replaced": model.heads["replaced"]}))
        return {
            "": (judges, replace(recipe, objective=replace(objective, replacements="unigram"))),
            "generator": (
                writes,
                replace(recipe, model=generator.settings, objective=Masked(random=0.0)),
            ),
        }

    def has_memory(self, design: Design, vocab: Vocab) -> Iterator[ParameterMap]:
        """The table of the one or the other."""
        yield from encoder.body(design, self.prefix)
        yield encoder.position(self.prefix)
        yield encoder.segment(self.prefix)
        if design.model.d_embedding:
            widen = {"projection": "embeddings_project"}
            yield from map_each(widen, "backbone.embedding.", self.prefix)
        if isinstance(design.objective, ReplacedToken):
            yield from map_each(JUDGE, "heads.replaced.", "discriminator_predictions.")
        else:
            head = "generator_predictions"
            yield from encoder.head(f"{head}.dense", f"{head}.LayerNorm", "generator_lm_head.bias")

    def copies(self, design: Design) -> Mapping[str, str]:
        """The output layer is the embedding."""
        return {"generator_lm_head.weight": self.embedding}

    def is_buffer(self, name: str) -> bool:
        """The numbers 0, 1, 2, ..."""
        return name == "electra.embeddings.position_ids"

    def notes(self, design: Design) -> tuple[str, ...]:
        """That there is no generator, where there is none."""
        if getattr(design.objective, "replacements", "generator") == "generator":
            return ()
        return (
            "a discriminator without its generator: pretraining goes on with fakes from the text "
            f"(objective.replacements={design.objective.replacements}); a folder generator/ inside "
            "its own would be read with it",
        )
