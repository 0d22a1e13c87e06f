"""What fine-tuning changed, from the weights it started from to the tuned ones.

Weights are compared layer by layer, states by linear CKA, and the loss is measured on straight
lines and planes through weights: on a line, at x = 0 the start with the tuned head, at x = 1 the
tuned network. In a wide basin the loss changes slowly along such a line and past its end.

Reference: Hao et al. 2019 (lines and planes of a fine-tuned BERT); Li et al. 2018; Goodfellow et
al. 2015; Kornblith et al. 2019 (CKA).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from foreword.disk import stored
from foreword.errors import UserError
from foreword.runs.continued import with_special
from foreword.runs.trained_model import TrainedModel
from foreword.settings import config, kinds
from foreword.tables.examples import Labelled
from foreword.tuning.answers import AnswerExamples
from foreword.tuning.curvature import CURVED, largest_eigenvalue
from foreword.tuning.evaluate import network_and_examples
from foreword.tuning.network import Network
from foreword.tuning.outputs import batch_loss, mean_loss
from foreword.tuning.packed_examples import PackedExamples
from foreword.tuning.scores import metric_name
from foreword.tuning.starting_network import adapted, starting_network
from foreword.tuning.strategies._contract import Strategy
from foreword.tuning.tasks._contract import Task
from foreword.tuning.tasks._writing import AnswerForm, WritingTask
from foreword.tuning.tune_data import added_tokens
from foreword.tuning.tuned_folder import SCORES
from foreword.tuning.tuned_model import Predictor, TunedModel, TunedWriter, not_one_network
from foreword.types import Array

Weights = Mapping[str, Tensor]  # by the names of `named_parameters`

LAYER = re.compile(r"(.*?)(?:\.|_l)(\d+)(?:\.|$)")  # of a parameter's name: stack.blocks.0.
STACKS = ("stack", "core")  # the only ones of their models, so that their layers need no name
MOST_TOKENS = 8_192  # whose states are compared
LINE = tuple(np.linspace(-0.5, 2.0, 21).tolist())  # points of a line: 0 the start, 1 the end
PLANE = tuple(np.linspace(-0.5, 1.5, 11).tolist())  # points of a plane along each axis


@dataclass(frozen=True)
class DevLoss:
    """The loss of a network on labelled examples.

    Attributes:
        value: mean loss of an example, in nats for classes.
        score: the first metric of the task.
    """

    value: float
    score: float
    metric: str


@dataclass(frozen=True)
class WeightChange:
    """A tuned network, and where it started.

    Attributes:
        network: the tuned network, in evaluation mode; its weights are changed and restored.
        examples: labelled examples that losses are measured on.
        start: the weights before the first step; in place of a new head's the tuned ones, since it
            had none of its own to start from.
        is_pretrained: whether it started from pretrained weights.
        random_head: a new head before the first step; empty for a model that answers in text.
    """

    name: str
    network: Network
    task: Task
    examples: PackedExamples
    start: Weights
    end: Weights
    is_pretrained: bool
    device: torch.device
    random_head: Weights = field(repr=False)

    @property
    def start_name(self) -> str:
        """Where it started, in words."""
        return "pretrained" if self.is_pretrained else "from scratch"


def change_of(
    tuned: Predictor | TunedWriter, trained: TrainedModel, dev: Sequence[Labelled], name: str
) -> WeightChange:
    """Return the change from a pretrained model, or random weights, to a tuned one.

    Raises:
        UserError: it was not tuned from this model, or the examples do not fit it.
    """
    if not isinstance(tuned, TunedModel | TunedWriter):
        raise not_one_network(tuned.source)
    scores = stored.read(tuned.source / SCORES)
    settings, seed = scores["settings"], scores["epochs"][0]["seed"]  # the first is saved
    strategy: Strategy = config.build_kind(
        kinds.Part("tuning/strategies"), settings["strategy"], "tune.strategy"
    )
    # The network before the first step.
    network, encoded = network_and_examples(tuned, dev)
    device = next(network.parameters()).device
    whole = with_special(trained, added_tokens(trained, tuned.task))
    template = tuned.template
    if isinstance(tuned.task, WritingTask):
        template = replace(template, fresh=AnswerForm.of(whole, template).fresh)
    begun = starting_network(
        adapted(whole, strategy, seed),
        tuned.task,
        tuned.labels,
        seed,
        template.fresh if strategy.trains_backbone else (),
        from_scratch=bool(settings["from_scratch"]),
        reinit_layers=int(settings.get("reinit_layers", 0)),
    ).to(device)
    start, end = _weights(begun), _weights(network)
    start = {key: start[key] for key in start if not key.startswith("token_head.")}
    if {key: w.shape for key, w in start.items()} != {key: w.shape for key, w in end.items()}:
        raise UserError(
            f"{tuned.source}: was not tuned from {trained.name}, whose weights have other shapes; "
            "--run names the run it was tuned from"
        )
    new = () if begun.as_model() else [key for key in start if not key.startswith("backbone.")]
    return WeightChange(
        name,
        network,
        tuned.task,
        encoded,
        {key: end[key] if key in new else weight for key, weight in start.items()},
        end,
        not settings["from_scratch"],
        device,
        {key: start[key] for key in new},
    )


def distances(change: WeightChange) -> dict[str, float]:
    """Return |end - start| / |start| of each layer, and of `all` weights below the head.

    The head's, from its random start, is `head`.
    """
    start = {**change.start, **change.random_head}
    changed: dict[str, float] = {}
    before: dict[str, float] = {}
    for name, weight in start.items():
        layer = layer_of(name)
        for group in (layer,) if layer == "head" else (layer, "all"):
            difference = (change.end[name] - weight).double().square().sum()
            changed[group] = changed.get(group, 0.0) + float(difference)
            before[group] = before.get(group, 0.0) + float(weight.double().square().sum())
    return {
        group: float(np.sqrt(changed[group] / before[group])) if before[group] else float("nan")
        for group in sorted(changed, key=_layer_order)
    }


def layer_of(name: str) -> str:
    """Return the layer of a parameter of a network: embedding, layer 1, ..., head, other."""
    part, _, rest = name.partition(".")
    if part != "backbone":
        return "head"
    if rest.startswith("embedding."):
        return "embedding"
    if (match := LAYER.match(rest)) is None:
        return "other"
    stack = match[1].partition(".")[0]
    return f"{'layer' if stack in STACKS else stack} {int(match[2]) + 1}"


def _layer_order(layer: str) -> tuple[int, str, int]:
    """Return a sort key: from the embedding upwards, what belongs to no layer last."""
    name, _, number = layer.partition(" ")
    ends = {"embedding": 0, "other": 2, "head": 3, "all": 4}
    return ends.get(name, 1), "" if name == "encoder" else name, int(number or 0)


def similarities(change: WeightChange) -> list[float]:
    """Return the linear CKA of the states before and after tuning, of each layer from the input.

    It is 1 if one set of states is a rotation and scaling of the other. Empty for a model without
    layers.
    """
    before, after = (_states(change, weights) for weights in (change.start, change.end))
    return [linear_cka(x, y) for x, y in zip(before, after, strict=True)]


def linear_cka(x: Array, y: Array) -> float:
    """Return the linear centred kernel alignment of two sets of states, (tokens, width) each.

    Reference: Kornblith et al. 2019, section 3 and equation 5.
    """
    x, y = (states - states.mean(0) for states in (x.astype(float), y.astype(float)))
    norms = np.linalg.norm(x.T @ x) * np.linalg.norm(y.T @ y)
    return float(np.linalg.norm(y.T @ x) ** 2 / norms) if norms else float("nan")


def line(change: WeightChange, points: Sequence[float]) -> list[DevLoss]:
    """Return the loss at points of the line through start (0) and end (1)."""
    return [_loss_at(change, [(x, change)]) for x in points]


def plane(
    change: WeightChange, other: WeightChange, xs: Sequence[float], ys: Sequence[float]
) -> Array:
    """Return the loss on the plane of a change's start and end and the end of another.

    Args:
        change: its start is at (0, 0), its end at (1, 0).
        other: its end is at (0, 1).
        xs: points along the first change.
        ys: points towards the other end.

    Returns:
        (ys, xs) float64, on the examples of the first change.

    Raises:
        UserError: the two are different networks.
    """
    shapes = [{key: weight.shape for key, weight in tuned.end.items()} for tuned in (change, other)]
    if shapes[0] != shapes[1]:
        raise UserError(
            f"{other.name}: is another network than {change.name}, so no plane has both"
        )
    return np.array([[_loss_at(change, [(x, change), (y, other)]).value for x in xs] for y in ys])


def _loss_at(change: WeightChange, steps: Sequence[tuple[float, WeightChange]]) -> DevLoss:
    """Return the loss at the start of a change, plus shares of the ways to the ends of some."""
    weights = {
        key: sum((x * (to.end[key] - w) for x, to in steps), start=w)
        for key, w in change.start.items()
    }
    with _with_weights(change, weights):
        return loss_of(change)


def loss_of(change: WeightChange) -> DevLoss:
    """Return the loss of the network as it is."""
    total = count = 0.0
    outputs, numbers = [], []
    with torch.inference_mode():
        for batch in change.examples.scoring_batches(change.device.type):
            on_device = batch.to(change.device)
            features, loss = batch_loss(change.network, change.task, on_device)
            total, count = total + float(loss.total), count + float(loss.count)
            scored = change.network.scored_outputs(features, on_device.targets, on_device.windows)
            outputs.append(scored.cpu().numpy())
            numbers.append(batch.numbers)
    order = np.argsort(np.concatenate(numbers), kind="stable")
    metric, score = _score(change, np.concatenate(outputs)[order])
    return DevLoss(total / max(1.0, count), score, metric)


def _score(change: WeightChange, outputs: Array) -> tuple[str, float]:
    """Return the first metric of the task and its value."""
    task, examples = change.task, change.examples
    if (
        isinstance(task, WritingTask)
        and isinstance(examples, AnswerExamples)
        and task.writes_for(examples.prompted)
    ):
        right = np.concatenate(list(change.examples.targets))
        return "tokens", float(np.mean(outputs[:, 0].astype(np.int64) == right))
    metric, score = next(iter(change.task.judge.scores(outputs, change.examples.targets).items()))
    return metric, float(score)


@contextmanager
def _with_weights(change: WeightChange, weights: Weights) -> Iterator[None]:
    """Give the network other weights within the context."""
    try:
        change.network.load_state_dict(weights, strict=False)
        yield
    finally:
        change.network.load_state_dict(change.end, strict=False)


def _weights(network: nn.Module) -> dict[str, Tensor]:
    return {name: w.detach().clone() for name, w in network.named_parameters()}


def _states(change: WeightChange, weights: Weights) -> list[Array]:
    """Return the states of the examples' tokens by layer, (tokens, width) each."""
    layers: list[list[Array]] = []
    tokens = 0
    with _with_weights(change, weights), torch.inference_mode():
        for batch in change.examples.scoring_batches(change.device.type):
            inputs = batch.to(change.device).batch
            hidden = change.network.backbone.by_layer(inputs).layers or ()
            documents = (inputs if inputs.source is None else inputs.source).documents
            layers = layers or [[] for _ in hidden]
            for states, of_layer in zip(layers, hidden, strict=True):
                is_token = torch.ones(of_layer.shape[:2], dtype=torch.bool, device=change.device)
                is_token = is_token if documents is None else documents >= 0
                states.append(of_layer[is_token].float().cpu().numpy())
            tokens += len(layers[0][-1]) if layers else 0
            if tokens >= MOST_TOKENS or not layers:
                break
    return [np.concatenate(states) for states in layers]


def steps(changes: Sequence[WeightChange]) -> int:
    """Return how many steps `measured` takes."""
    return len(changes) * (len(LINE) + 3) + (len(changes) > 1) * len(PLANE)


def measured(changes: Sequence[WeightChange], step: Callable[[str], None]) -> dict[str, Any]:
    """Return all figures of changes.

    Args:
        changes: tuned networks, each with its start; the plane is that of the first two.
        step: called with what comes next, `steps(changes)` times.
    """
    rows, layers, states, lines = [], [], [], []
    for change in changes:
        labels = {"model": change.name, "start": change.start_name}
        step(f"{change.name}: weights")
        layer_distances = distances(change)
        layers += [
            {**labels, "layer": layer, "distance": d} for layer, d in layer_distances.items()
        ]
        step(f"{change.name}: states")
        layer_cka = similarities(change)
        states += [{**labels, "layer": layer, "cka": cka} for layer, cka in enumerate(layer_cka)]
        losses = []
        for x in LINE:
            step(f"{change.name}: line")
            losses += line(change, [x])
        lines += [
            {**labels, "x": x, "loss": loss.value, loss.metric: loss.score}
            for x, loss in zip(LINE, losses, strict=True)
        ]
        step(f"{change.name}: curvature")
        numbers = np.arange(min(CURVED, len(change.examples)))
        parameters = [p for p in change.network.parameters() if p.requires_grad]
        looked_at = partial(mean_loss, change.network, change.task, change.examples, numbers)
        curvature = largest_eigenvalue(looked_at, parameters)
        loss_at = dict(zip(LINE, losses, strict=True))
        rows.append(
            {
                **labels,
                "distance": layer_distances["all"],
                "CKA, last layer": layer_cka[-1] if layer_cka else None,
                "loss at start": loss_at[0.0].value,
                "loss": loss_at[1.0].value,
                metric_name(loss_at[1.0].metric): loss_at[1.0].score,
                "largest eigenvalue": curvature,
            }
        )
    content: dict[str, Any]
    content = {"rows": rows, "distances": layers, "states": states, "line": lines}
    if len(changes) > 1:
        content["plane"] = []
        for y in PLANE:
            step("plane")
            losses = plane(changes[0], changes[1], PLANE, [y])[0]
            content["plane"] += [
                {"x": x, "y": y, "loss": float(loss)} for x, loss in zip(PLANE, losses, strict=True)
            ]
    count = len(changes[0].examples)
    content["notes"] = [
        "distance: |end - start| / |start| of all weights below the head; CKA: of the states "
        "before and after, 1 if they are the same but for rotation and scale",
        f"loss: mean of {count:,} labelled examples; at the start with the tuned head",
        f"largest eigenvalue: of the Hessian of the loss at the tuned weights, on the first "
        f"{min(CURVED, count):,} examples; the smaller, the flatter",
    ]
    return content
