"""Initialisation of weights: one function, four published schemes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.overrides import TorchFunctionMode

from foreword.errors import UserError
from foreword.nn.attention import Attention
from foreword.nn.attention_prefix import AttentionPrefix
from foreword.nn.attentions._contract import Recurrence
from foreword.nn.block import EmbeddingShortcut
from foreword.nn.characters import Highway
from foreword.nn.embedding import Bigrams
from foreword.nn.feedforward import FeedForward
from foreword.nn.heads import TokenHead
from foreword.nn.model import Model, ModelSettings, neural
from foreword.nn.norm import LayerNorm, RMSNorm
from foreword.nn.positions.t5_bias import T5BiasPositions
from foreword.nn.sharded import set_values

# Modules whose parameters `initialise` sets; others set theirs as they are built.
INITIALISED = (
    nn.Linear, nn.Conv1d, nn.Embedding, nn.RNNBase, LayerNorm, RMSNorm, TokenHead, AttentionPrefix,
    Bigrams, EmbeddingShortcut, Recurrence,
)  # fmt: skip


RESIDUAL = (Attention, Recurrence, FeedForward)  # modules that write to the residual stream


@contextmanager
def shapes_only(device: str = "meta") -> Iterator[None]:
    """Build modules on the meta device: their tensors have shapes and no numbers.

    Among fake tensors, the device is that which they pretend to be on.

    The initialisation that PyTorch's modules do themselves is skipped. On the meta device it would
    run in Python, after an import of torch's compiler that takes a second.
    """
    with torch.device(device), unfilled():
        yield


@contextmanager
def unfilled() -> Iterator[None]:
    """Build modules whose numbers are all set later, as by a checkpoint: draw none before.

    PyTorch's modules initialise themselves otherwise, which takes most of the time of building.
    """
    with _Unfilled():
        yield


@contextmanager
def without_weights() -> Iterator[None]:
    """Build modules whose parameters have shapes and no numbers, until `initialise`.

    Raises:
        UserError: a module has parameters that `initialise` does not know.
    """

    def drop(module: nn.Module, name: str, parameter: nn.Parameter) -> nn.Parameter:
        if parameter.is_meta:  # shared with a module built before
            return parameter
        if not isinstance(module, INITIALISED):
            raise UserError(
                f"parallel.kind: {type(module).__name__} sets the first values of its {name} "
                "itself, so the model cannot be divided; use parallel.kind=ddp"
            )
        return nn.Parameter(torch.empty_like(parameter, device="meta"), parameter.requires_grad)

    handle = register_module_parameter_registration_hook(drop)  # type: ignore[arg-type]
    try:
        with unfilled():
            yield
    finally:
        handle.remove()


class _Unfilled(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__module__", None) == "torch.nn.init":
            return args[0] if args else kwargs["tensor"]
        return func(*args, **(kwargs or {}))


def initialise(model: Model, seed: int) -> None:
    """Initialise every weight of `model` from `seed`; biases are 0, norms 1.

    - `bert`: every matrix and embedding normal with `init_std`, wrapped at two deviations
      (Devlin et al. 2019, whose code redraws those beyond).
    - `gpt2`: normal with `init_std`; the layers that write to the residual stream are divided by
      sqrt(2 * layers) (Radford et al. 2019, section 2.3).
    - `uniform`: every parameter, biases too, uniform within `init_std` of 0 (Zaremba et al. 2014,
      section 4.1).
    - `t5`: embeddings with deviation 1; each matrix, an untied output layer too, with 1 /
      sqrt(width of its input); the query projection is divided by sqrt(d_head) as well, so that
      unscaled attention starts with scores of order 1 (Raffel et al. 2020, their code; T5X for the
      output layer).

    Recurrent layers, under every scheme but `uniform`: matrices with deviation 1 / sqrt(width of
    their input), biases 0. None begins orthogonal, and no forget gate begins open.

    A prefix of attention, under every scheme but `uniform`: keys and values with deviation 1. Its
    gates are 0 under every scheme, as are the embeddings of pairs; shortcuts from the embedding
    begin with weights of 1 and 0. Decays and convolutions of recurrences begin as published.

    Numbers are drawn for one whole parameter after another, of which a sharded one keeps its rows:
    the weights are the same on any number of processes.
    """
    settings = neural(model.backbone).settings
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        if settings.init == "uniform":
            for parameter in model.parameters():
                drawn = torch.rand(parameter.shape, generator=random)
                set_values(parameter, drawn.mul_(2).sub_(1).mul_(settings.init_std))
        else:
            for module in model.modules():
                _initialise_module(module, settings, random)
            for module in model.modules():
                _rescale(module, settings)
        for module in model.modules():
            if isinstance(module, AttentionPrefix):
                module.gate.zero_()  # closed, so that at first the prefix adds nothing
            elif isinstance(module, Bigrams):
                module.weight.zero_()
            elif isinstance(module, EmbeddingShortcut):
                set_values(module.weight, torch.tensor([1.0, 0.0]))
            elif isinstance(module, Recurrence):
                module.initialise(random)


def embedding_std(settings: ModelSettings) -> float:
    """Return the standard deviation of the embeddings that `initialise` draws."""
    if settings.init == "uniform":
        return settings.init_std / math.sqrt(3)
    return 1.0 if settings.init == "t5" else settings.init_std


def _initialise_module(module: nn.Module, settings: ModelSettings, random: torch.Generator) -> None:
    """Initialise the parameters that `module` itself holds."""
    is_t5 = settings.init == "t5"

    def normal(weight: Tensor, std: float) -> None:
        drawn = torch.randn(weight.shape, generator=random)
        if settings.init == "bert":
            drawn.fmod_(2.0)
        set_values(weight, drawn.mul_(std))

    if isinstance(module, nn.Linear | nn.Conv1d):
        inputs = module.weight.shape[1:].numel()
        normal(module.weight, inputs**-0.5 if is_t5 else settings.init_std)
    elif isinstance(module, nn.Embedding):
        normal(module.weight, embedding_std(settings))
    elif isinstance(module, TokenHead) and not settings.tied:
        normal(module.weight, module.weight.shape[1] ** -0.5 if is_t5 else settings.init_std)
    elif isinstance(module, AttentionPrefix):
        normal(module.keys, 1.0)
        normal(module.values, 1.0)
    elif isinstance(module, LayerNorm | RMSNorm):
        module.weight.fill_(1.0)
    elif isinstance(module, nn.RNNBase):
        for name, parameter in module.named_parameters():
            if "weight" in name:
                normal(parameter, parameter.shape[1] ** -0.5)
            else:
                parameter.zero_()
    if isinstance(module, INITIALISED):
        for name, parameter in module.named_parameters(recurse=False):
            if name == "bias":
                parameter.zero_()


def _rescale(module: nn.Module, settings: ModelSettings) -> None:
    """Rescale weights by depth or width of heads, and nearly close highway gates."""
    if isinstance(module, Highway):
        module.close_gates()
    if settings.zero_init_residual and isinstance(module, RESIDUAL):
        projection = module.down if isinstance(module, FeedForward) else module.output
        projection.weight.zero_()
    if settings.init == "gpt2" and isinstance(module, RESIDUAL):
        projection = module.down if isinstance(module, FeedForward) else module.output
        projection.weight.div_(math.sqrt(2 * settings.layers))
    if settings.init == "t5" and isinstance(module, Attention):
        module.query.weight.mul_(module.d_head**-0.5)
    if settings.init == "t5" and isinstance(module, T5BiasPositions):
        module.table.weight.mul_(settings.d_model**-0.5)
