"""A trained Transformer turned into one of another family: encoder, decoder, encoder-decoder.

Each parameter takes the weights of the parameter of the same name in the stack that is most like
its own; cross-attention those of the self-attention of its block. What has no counterpart of its
shape, such as the head of another objective, begins as for pretraining.

Reference: Zhang et al. 2025, "Encoder-decoder Gemma" (T5Gemma), section 3: a decoder's weights for
both stacks, cross-attention from self-attention; BehnamGhader et al. 2024, LLM2Vec (decoder into
encoder); Gong et al. 2025 (decoder into masked diffusion).
Differs from the papers: masks change at once, and targets of encoders stay in place, where Gong et
al. shift them by one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

import torch

from foreword.models.encoder_decoder import EncoderDecoder
from foreword.models.transformer import Transformer
from foreword.nn.model import Model
from foreword.runs.recipe import Recipe
from foreword.settings import config, kinds
from foreword.train import checkpoint

LAYOUTS = ("decoder", "encoder", "encoder_decoder", "hybrid", "prefix")
_STACK = re.compile(r"backbone\.(stack|encoder|decoder)\.(.+)")
_CROSS = re.compile(r"\.cross(_norm)?\.")


def can_be(trained: Recipe, recipe: Recipe) -> bool:
    """Return whether a model of one recipe can be turned into one of the other's layout."""

    def is_plain(each: Recipe) -> bool:
        model = each.model
        own = isinstance(model, Transformer) and (model.memory or model.two_streams)
        is_stack = isinstance(model, Transformer | EncoderDecoder) and not own
        return is_stack and kinds.name_of(each.layout) in LAYOUTS

    return is_plain(trained) and is_plain(recipe)


def recipe_for(trained: Recipe, recipe: Recipe) -> Recipe:
    """Return the recipe with the trained model's architecture, in the kind of its own.

    Raises:
        UserError: the architecture and the recipe do not fit each other.
    """
    old, new = config.to_table(trained)["model"], config.to_table(recipe)["model"]
    shared = old.keys() & new.keys() if old["kind"] != new["kind"] else old.keys()
    # Of what one kind alone has, and of what the mask decides, the recipe's stays.
    own = {key: new[key] for key in new.keys() - shared}
    own |= {key: new[key] for key in ("kind", "assumes_causal_mask") if key in new}
    own.pop("decoder_layers", None)
    table = {key: old[key] for key in shared} | own
    if isinstance(trained.model, EncoderDecoder) and recipe.layout.is_causal:
        table["layers"] = trained.model.decoder_layers or trained.model.layers
    return config.build(Recipe, {**config.to_table(recipe), "model": table})


def carry_over(old: Model, new: Model, *, is_causal: bool) -> tuple[str, ...]:
    """Copy the weights of `old` into an initialised model of another family; return a table.

    Args:
        old: the trained model.
        new: the model of the other family.
        is_causal: whether its stack, if it has but one, is a decoder.

    Returns:
        A line for each part of `new`: its parameters and where they come from; then one of the
        parameters of `old` that are used nowhere.
    """
    source, target = checkpoint.stored_tensors(old), checkpoint.stored_tensors(new)
    sizes, used = Counter[tuple[str, str]](), set[str]()
    with torch.no_grad():
        for name, tensor in target.items():
            places = (
                place
                for place in _counterparts(name, is_causal=is_causal)
                if place in source and source[place].shape == tensor.shape
            )
            place = next(places, None)
            if place is not None:
                tensor.copy_(source[place])
                used.add(place)
            sizes[_part(name), "fresh" if place is None else f"from {_part(place)}"] += (
                tensor.numel()
            )
    for name in source:
        if name not in used:
            sizes[_part(name), "left behind"] += source[name].numel()
    width = max(len(part) for part, _ in sizes)
    return tuple(f"  {part:<{width}}  {size:>13,}  {come}" for (part, come), size in sizes.items())


def _counterparts(name: str, *, is_causal: bool) -> Iterator[str]:
    """Yield the names that a parameter may have in another family, the likest first."""
    found = _STACK.fullmatch(name)
    if found is None:
        yield name
        return
    stack, rest = found.groups()
    likest = ("decoder", "encoder") if stack == "decoder" or is_causal else ("encoder", "decoder")
    for inside in dict.fromkeys((rest, _CROSS.sub(r".attention\1.", rest))):
        for each in dict.fromkeys((stack, "stack", *likest)):
            yield f"backbone.{each}.{inside}"


def _part(name: str) -> str:
    """Return the part of a model that a parameter belongs to: `decoder`, `cross-attention`."""
    if _CROSS.search(name):
        return "cross-attention"
    parts = name.split(".")
    return parts[1] if parts[0] == "backbone" else " ".join(parts[:2])
