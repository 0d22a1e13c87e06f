"""Continued pretraining: a run that starts from trained weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import nn

from foreword.data.read_documents import ReadSettings, read_documents
from foreword.errors import UserError
from foreword.nn.init import initialise, shapes_only
from foreword.nn.model import Model
from foreword.runs import turned
from foreword.runs.recipe import Recipe
from foreword.runs.same_model import differences, resolved
from foreword.runs.trained_model import TrainedModel
from foreword.settings import config, kinds
from foreword.text.extended import add_special
from foreword.text.extended import extend as extend_tokenizer
from foreword.train import checkpoint

START = "start"  # in a run folder: the weights that it starts from


@dataclass(frozen=True)
class StartingModel(TrainedModel):
    """A trained model that a run continues from.

    Attributes:
        provenance: what the new run's `run.json` records of it.
        is_foreign: whether it comes from a Hugging Face folder rather than from a run.
    """

    WRITES: ClassVar[tuple[str, ...]] = (START, f".{START}.part", f".{START}.old", "tokenizer")

    provenance: dict[str, Any] = field(default_factory=dict)
    is_foreign: bool = False

    @classmethod
    def of(cls, trained: TrainedModel, **more: Any) -> Self:
        """Return a trained model as one to start from, with the fields that this class adds."""
        shared = {field.name: getattr(trained, field.name) for field in fields(TrainedModel)}
        return cls(**shared, **more)

    def with_recipe(self, recipe: Recipe, assignments: Sequence[str] = ()) -> StartingModel:
        """Return this model with `recipe`, whose model settings it replaces with its own.

        Heads that the recipe's objective does not use are dropped, and a note says so. With another
        layout the model is turned into one of that family (`foreword.runs.turned`), and the notes
        are a table of what carries over.

        Args:
            recipe: all settings but the model's.
            assignments: `--set` of settings that concern training alone, such as `model.dropout`.

        Raises:
            UserError: the recipe's objective, layout or packing does not fit the model.
        """
        # Layout, row length and special tokens must suit the model.
        layout, trained = kinds.name_of(recipe.layout), kinds.name_of(self.recipe.layout)
        is_turned, can_be_turned = layout != trained, turned.can_be(self.recipe, recipe)
        for part in ("layout", "model"):
            kind, own = (kinds.name_of(getattr(each, part)) for each in (recipe, self.recipe))
            if kind != own and not can_be_turned:
                raise UserError(
                    f"{part}.kind: the recipe's is '{kind}', and {self.name} was trained with "
                    f"'{own}'; choose a recipe of that {part} (a Transformer of layout "
                    f"{', '.join(turned.LAYOUTS)} can be turned into another of these)"
                )
        limit = self.recipe.model.limit
        if limit is not None and recipe.max_sequence(recipe.packing.length) > limit:
            fitting = (n for n in range(limit, 0, -1) if recipe.max_sequence(n) <= limit)
            raise UserError(
                f"packing.length: {recipe.rows_in_words()}, but {self.name} has {limit} positions; "
                f"use --set packing.length={next(fitting, 1)}"
            )
        for side in ("bos", "eos"):
            name = getattr(recipe.packing, side)
            if name and name not in self.tokenizer.vocab.special:
                raise UserError(
                    f"packing.{side}: the tokenizer of {self.name} has no {name}; "
                    f'use --set packing.{side}="" or another special token'
                )
        # The recipe's model, with the weights of this one.
        like = turned.recipe_for(self.recipe, recipe) if is_turned else self.recipe
        model_settings = self._model(like, assignments)
        combined = replace(recipe, model=model_settings, tokenizer=self.recipe.tokenizer)
        model = combined.build(self.tokenizer.vocab)
        if is_turned or hasattr(model, "stage_heads"):  # heads may be new
            initialise(model, recipe.train.seed)
        if is_turned:
            carried = turned.carry_over(self.model, model, is_causal=recipe.layout.is_causal)
            notes = (f"{self.name} ({trained}) turned into layout '{layout}':", *carried)
            facts = {**self.provenance, "turned": list(carried)}
            return replace(
                self, recipe=combined, model=model, notes=self.notes + notes, provenance=facts
            )
        unused = _copy_matching(self.model, model)
        # Only heads may be unused, and nothing may be missing.
        available, required = _shapes(self.model), _shapes(model)
        missing = sorted(
            name
            for name, shape in required.items()
            if available.get(name) != shape and not name.startswith("stage_heads.")
        )
        if missing or not all(name.startswith("heads.") for name in unused):
            raise self._mismatch(recipe, missing or unused)
        notes = (f"heads left behind: {', '.join(unused)}",) if unused else ()
        return replace(self, recipe=combined, model=model, notes=self.notes + notes)

    def _mismatch(self, recipe: Recipe, names: list[str]) -> UserError:
        """Return the error for an objective whose parameters are missing or of another shape."""
        kind, trained = kinds.name_of(recipe.objective), kinds.name_of(self.recipe.objective)
        options = _as_trained(recipe.objective, self.recipe.objective)
        new = {name.split(".")[1] for name in names} - set(self.model.heads)
        published = self.provenance.get("imported", {}).get("heads_apart", ())
        if separate := [head for head in published if head in new]:
            head, folder = separate[0], self.provenance["imported"]["folder"]
            again = "" if self.is_foreign else "import it again, "
            return UserError(
                f"objective.kind: '{kind}' needs a {head}, which {self.name} lacks; put the folder "
                f"of the {head} trained with it into {folder}, as {head}/, {again}and start from "
                f"that; or use {options}"
            )
        return UserError(
            f"objective.kind: '{kind}' needs heads that {self.name} lacks "
            f"({', '.join(names[:2])}): it was trained with '{trained}'; use {options}"
        )

    def _model(self, like: Recipe, assignments: Sequence[str]) -> Any:
        """Return the model's settings in `like`, with assignments to those of training."""
        table = {"model": config.to_table(like)["model"]}
        model_assignments = [text for text in assignments if text.startswith("model.")]
        changed = config.build(
            Recipe, {**config.to_table(like), **config.assign(table, model_assignments)}
        ).model
        if changes := differences(resolved(like.model), resolved(changed)):
            raise UserError(
                f"--set {model_assignments[0]}: the architecture comes from {self.name}; only "
                f"dropout can be changed: {'; '.join(changes)}"
            )
        return changed

    def save(self, run: Path) -> None:
        """Write the weights and the tokenizer that a run starts from into its folder.

        Raises:
            UserError: the folder cannot be written.
        """
        checkpoint.save(run / START, self.model, None, {})
        self.tokenizer.save(run / "tokenizer")


def load_start(run: Path, model: Model) -> None:
    """Load the weights that the run starts from into `model`, if there are any.

    Raises:
        UserError: they are damaged.
    """
    folder = run / START
    if folder.is_dir():
        checkpoint.verify(folder)
        checkpoint.load_weights(folder, model)


def extend(
    starting_model: StartingModel, texts: Sequence[str], read: ReadSettings, number: int
) -> StartingModel:
    """Return the model with `number` new tokens, learned from texts.

    The row of a new token, in the embedding and in the output layer, is the mean of the rows of
    the pieces that it replaces (Hewitt 2021; Gee et al. 2022).

    Raises:
        UserError: there is too little text, or a tokenizer that cannot be extended.
    """
    documents = read_documents(texts, read)
    extended = extend_tokenizer(
        starting_model.tokenizer, (document.text for document in documents), number
    )
    model = starting_model.recipe.build(extended.tokenizer.vocab)
    _grow(starting_model.model, model)
    by_token = _by_token(starting_model)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name in by_token:
                for token, pieces in extended.replaced.items():
                    parameter[token] = parameter[list(pieces)].mean(0)
    return replace(starting_model, tokenizer=extended.tokenizer, model=model)


def with_special(trained: TrainedModel, names: Sequence[str]) -> TrainedModel:
    """Return the model with more special tokens, their rows initialised as for pretraining.

    Args:
        trained: the model, which is not changed.
        names: names of the tokens, new to its tokenizer.

    Raises:
        UserError: no tokens can be added to the tokenizer.
    """
    if not names:
        return trained
    tokenizer = add_special(trained.tokenizer, names)
    model = trained.recipe.build(tokenizer.vocab)
    initialise(model, trained.recipe.train.seed)
    _grow(trained.model, model)
    model = model.to(trained.device).eval()
    return replace(trained, tokenizer=tokenizer, model=model)


def _grow(old: Model, new: Model) -> None:
    """Copy the parameters of `old` into `new`, into the first rows of those that have more."""
    rows = checkpoint.stored_tensors(old)
    with torch.no_grad():
        for name, tensor in checkpoint.stored_tensors(new).items():
            first = tensor if tensor.shape == rows[name].shape else tensor[: len(rows[name])]
            first.copy_(rows[name])


def _as_trained(requested: Any, trained: Any) -> str:
    """Return the options that give the objective that a model was trained with."""
    is_same_kind = kinds.name_of(requested) == kinds.name_of(trained)
    settings = config.to_table(requested) if is_same_kind else {}
    plain = (str, int, float)
    differ = {
        key: value
        for key, value in config.to_table(trained).items()
        if key in settings and value != settings[key] and isinstance(value, plain)
    }
    if not differ:
        return "a recipe with that objective"
    return " ".join(f"--set objective.{key}={value}" for key, value in differ.items())


def _by_token(starting_model: StartingModel) -> set[str]:
    """Return the names of the parameters that have a row for each token."""
    vocab = starting_model.tokenizer.vocab
    with shapes_only():
        grown = _shapes(starting_model.recipe.build(replace(vocab, size=vocab.size + 1)))
    shapes = _shapes(starting_model.model)
    return {name for name, shape in grown.items() if shape != shapes[name]}


def _copy_matching(old: Model, new: Model) -> list[str]:
    """Copy parameters of the same name and shape into `new`; return the names of the others."""
    parameters = checkpoint.stored_tensors(new)
    unused = []
    with torch.no_grad():
        for name, value in checkpoint.stored_tensors(old).items():
            if name in parameters and parameters[name].shape == value.shape:
                parameters[name].copy_(value)
            else:
                unused.append(name)
    return unused


def _shapes(model: nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(p.shape) for name, p in model.named_parameters()}
