"""The change that LoRA made, alone: a folder that `peft` puts on the exported pretrained model.

The saved weights are sums W + B A. The change of each matrix is the difference to the pretrained
one, and its factors are those of a singular value decomposition: they hold in any family, whichever
of our maps are one matrix there. All have the rank of the largest, filled with zeros.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import functional as F

from foreword.disk import atomic, stored
from foreword.errors import UserError
from foreword.interop import exporting, files
from foreword.interop.formats._contract import ExchangeResult
from foreword.interop.hf_config import FILE as HF_CONFIG
from foreword.runs.run_folder import is_run, open_run
from foreword.tuned_exports import hf
from foreword.tuning.tuned_folder import SCORES
from foreword.tuning.tuned_model import load_tuned

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"  # as peft names them
PREFIX = "base_model.model."
FUSED = 2  # the most of our maps that are one matrix in a family: those of queries and of keys
TRANSPOSED = ("gpt2", "openai-gpt")  # whose matrices are (inputs, outputs)
LAYER = re.compile(r"\.\d+\.")  # in the names of what is in a layer
ROUNDING = 1e-6  # relative to the matrix, of what a sum in float32 loses


def export(tuned: Path, base: Path, out: Path, family: str = "") -> ExchangeResult:
    """Write the change of a model tuned by `lora` as the folder `out`.

    Args:
        out: the folder; it must be absent or empty.
        family: the family of both; default: the one that fits.

    Raises:
        UserError: it was tuned in another way, or from another run, or one cannot be exported.
    """
    atomic.require_new_folder(out)
    scores = stored.read(tuned / SCORES) if (tuned / SCORES).is_file() else {}
    strategy = scores.get("settings", {}).get("strategy", {})
    if strategy.get("kind") != "lora":
        raise UserError(f"{tuned}: has no adapter; tune with --strategy lora")
    rank = int(strategy["rank"])
    with atomic.temporary_folder() as temporary:
        tuned_out, base_out = temporary / "tuned", temporary / "base"
        trained = open_run(base, "cpu")
        exporting.export(trained, base_out, family)
        if is_run(tuned):
            exporting.export(open_run(tuned, "cpu"), tuned_out, family)
        else:
            hf.export(load_tuned(tuned, "cpu"), tuned_out, family)
        new, old = load_file(tuned_out / files.WEIGHTS), load_file(base_out / files.WEIGHTS)
        model_type = json.loads((tuned_out / HF_CONFIG).read_text(encoding="utf-8"))["model_type"]
        change = _change(new, old, rank, transposes=model_type in TRANSPOSED)
        if not change.factors:
            raise UserError(f"--adapter {base}: {tuned} was not tuned from it, or learned nothing")
        (tuned_out / files.WEIGHTS).unlink()
        with atomic.folder(out) as part:
            shutil.copytree(tuned_out, part, dirs_exist_ok=True)
            change.write(part, fan_in_fan_out=model_type in TRANSPOSED)
    grown = f"the vocabulary has grown: resize_token_embeddings({change.tokens}) first"
    facts = {
        "folder": str(out),
        "rank": change.rank,
        "matrices": len(change.factors),
        "saved whole": ", ".join(change.whole) or None,
    }
    return ExchangeResult(facts, () if change.tokens is None else (grown,))


@dataclass(frozen=True)
class Change:
    """The difference from the pretrained model.

    Attributes:
        factors: B (outputs, rank) and A (rank, inputs) of each matrix of the layers, by its module.
        whole: all tensors of the other modules that differ, such as a head, by module and name.
        tokens: the vocabulary's size, if it is larger than that of the pretrained model.
    """

    factors: Mapping[str, tuple[Tensor, Tensor]]
    whole: Mapping[str, Mapping[str, Tensor]]
    tokens: int | None

    @property
    def rank(self) -> int:
        """The rank of the factors."""
        return next(iter(self.factors.values()))[0].shape[1]

    def write(self, folder: Path, *, fan_in_fan_out: bool) -> None:
        """Write the files of peft."""
        tensors = {}
        for module, (b, a) in self.factors.items():
            tensors[f"{PREFIX}{module}.lora_A.weight"] = a.contiguous()
            tensors[f"{PREFIX}{module}.lora_B.weight"] = b.contiguous()
        for module, named in self.whole.items():
            tensors |= {f"{PREFIX}{module}.{key}": t.contiguous() for key, t in named.items()}
        save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
        config = {
            "peft_type": "LORA",
            "task_type": None,
            "base_model_name_or_path": None,
            "r": self.rank,
            "lora_alpha": self.rank,  # whose quotient scales B A
            "lora_dropout": 0.0,
            "bias": "none",
            "fan_in_fan_out": fan_in_fan_out,
            "inference_mode": True,
            "target_modules": sorted(self.factors),
            "modules_to_save": sorted(m for m in self.whole if not _is_embedding(m)) or None,
        }
        exporting.write_json(folder / CONFIG, config)


def _change(
    new: Mapping[str, Tensor], old: Mapping[str, Tensor], rank: int, *, transposes: bool
) -> Change:
    """Return what differs between the weights of two folders."""
    factors: dict[str, tuple[Tensor, Tensor]] = {}
    changed = set()
    for name, tensor in new.items():
        module = name.rpartition(".")[0]
        if name in old and torch.equal(tensor, old[name]):
            continue
        if name not in old or tensor.shape != old[name].shape or not LAYER.search(name):
            changed.add(module)
            continue
        delta = tensor.double() - old[name].double()
        factor_pair = _factors(delta.T if transposes else delta, FUSED * rank, tensor)
        if factor_pair is None:
            changed.add(module)
        else:
            factors[module] = factor_pair
    most = max((b.shape[1] for b, _ in factors.values()), default=0)
    padded = {
        module: (F.pad(b, (0, most - b.shape[1])), F.pad(a, (0, 0, 0, most - len(a))))
        for module, (b, a) in factors.items()
    }
    whole: dict[str, dict[str, Tensor]] = {module: {} for module in sorted(changed)}
    for name, tensor in new.items():
        module, _, key = name.rpartition(".")
        if module in whole:
            whole[module][key] = tensor
    sizes = [
        len(named["weight"])
        for module, named in whole.items()
        if _is_embedding(module) and named["weight"].shape != old[f"{module}.weight"].shape
    ]
    return Change(padded, whole, max(sizes, default=None))


def _factors(delta: Tensor, most: int, matrix: Tensor) -> tuple[Tensor, Tensor] | None:
    """Return the factors of the least rank that leaves rounding; None with more than `most`."""
    u, sizes, v = torch.linalg.svd(delta, full_matrices=False)
    rank = int((sizes > ROUNDING * torch.linalg.matrix_norm(matrix.double(), 2)).sum())
    if rank > most:
        return None
    root = sizes[:rank].sqrt()
    return (u[:, :rank] * root).float(), (root[:, None] * v[:rank]).float()


def _is_embedding(module: str) -> bool:
    """Return whether a module, by its name in transformers, is a table of vectors."""
    return any(part in module for part in ("embed", "wte", "shared", "lm_head"))
