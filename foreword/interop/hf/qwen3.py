"""Qwen3: `Qwen3ForCausalLM`, Llama with queries and keys that are normalised."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from torch import Tensor

from foreword.interop.hf import _contract as hf
from foreword.interop.hf import llama
from foreword.interop.hf_config import HFConfig

FULL = "full_attention"
NORMS = {"attention.query_norm": "self_attn.q_norm", "attention.key_norm": "self_attn.k_norm"}


@dataclass(frozen=True)
class Qwen3(llama.Llama):
    """Qwen3 (Yang et al. 2025): Llama with an RMSNorm of each query and key.

    Each head has keys and values of its own; grouped-query attention is refused.
    """

    names = replace(llama.Llama.names, architecture="Qwen3ForCausalLM")
    keys = replace(
        llama.Llama.keys,
        fixed={**llama.Llama.keys.fixed, "qk_norm": True},
        supported={"attention_bias": False, "use_sliding_window": False, "sliding_window": None},
        ignored=("max_window_layers",),
    )

    def model(self, hf_config: HFConfig, weights: Mapping[str, Tensor]) -> hf.Table:
        """Return the model.

        Raises:
            UserError: a layer has a window, or as in `Llama`.
        """
        if set(hf_config.get("layer_types", None, list) or ()) - {FULL}:
            raise hf_config.refuse("layer_types", f"{FULL} in all layers")
        return super().model(hf_config, weights)

    def mixer(
        self, design: hf.Design, layer: int, ours: str, theirs: str
    ) -> Iterator[hf.ParameterMap]:
        yield from super().mixer(design, layer, ours, theirs)
        yield from hf.map_each(NORMS, ours, theirs, ("weight",), offset=self.norm_offset)
