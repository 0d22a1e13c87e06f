"""The network that is fine-tuned: a backbone with a head."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from foreword.errors import UserError
from foreword.nn.heads import TokenHead
from foreword.nn.model import Model, NeuralBackbone, SourceBackbone
from foreword.nn.trained_rows import count_trained
from foreword.tuning.tasks._contract import Needs
from foreword.tuning.windows import WindowPooling
from foreword.types import Batch, Hidden

NO_NEEDS = Needs()


class ScalarMix(nn.Module):
    """The sum gamma * sum over layers j of s_j h_j, with s = softmax(weights), learned with a task.

    Layer 0 is the input of the first layer. At first all s_j are equal and gamma is 1.

    Reference: Peters et al. 2018, equation 1; Tenney et al. 2019, section 3.2.
    Differs from the paper: layers are not normalised first, and the weights have no decay.

    Args:
        layers: number of layers, layer 0 included.
    """

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(layers))
        self.gamma = nn.Parameter(torch.ones(()))

    def forward(self, layers: Tensor) -> Tensor:
        """Return the mix, (layers, ..., width) -> (..., width)."""
        return self.gamma * torch.einsum("j,j...->...", torch.softmax(self.weights, dim=0), layers)

    def learned(self) -> dict[str, float]:
        """Return the weight of each layer, and gamma: `layer_0`, `layer_1`, ..., `layer_gamma`."""
        shares = torch.softmax(self.weights.detach(), dim=0).tolist()
        gamma = {"layer_gamma": float(self.gamma.detach())}
        return {f"layer_{n}": share for n, share in enumerate(shares)} | gamma


def require_layers(layers: Sequence[Tensor] | None) -> Sequence[Tensor]:
    """Return the layers; raise UserError unless there are several, of one width, to be mixed."""
    if layers is None:
        raise UserError("task.mix_layers: this model returns the states of its last layer only")
    widths = [states.shape[-1] for states in layers]
    if len(set(widths)) > 1:
        raise UserError(
            "task.mix_layers: requires layers of one width; this model's are "
            f"{', '.join(map(str, widths))}"
        )
    return layers


class Network(nn.Module, ABC):
    """The contract of a backbone with a head.

    Args:
        head: turns pooled states (outputs, d_model) into outputs.
        token_head: the output layer of pretraining, for an auxiliary language-model loss;
            or None.
        needs: those of the task: what the head reads, and how states are reduced to one.
    """

    def __init__(
        self,
        backbone: NeuralBackbone,
        head: nn.Module,
        token_head: TokenHead | None = None,
        needs: Needs = NO_NEEDS,
    ) -> None:
        super().__init__()
        self.reads_encoder, self.reduction = needs.reads_tokens, needs.reduction
        self.backbone = backbone
        self.head = head
        self.token_head = token_head
        self.scalar_mix = ScalarMix(backbone.settings.layers + 1) if needs.mix_layers else None
        width = backbone.settings.state_width if needs.windows == "attention" else 0
        self.window_pooling = WindowPooling(needs.windows, width)

    def layer_modules(self) -> list[nn.Module]:
        """Return the modules of each layer below the head, the lowest first."""
        backbone = self.backbone
        if self.reads_encoder and isinstance(backbone, SourceBackbone):
            return backbone.encoder_modules()
        return backbone.layer_modules()

    def parameters_by_depth(self) -> list[list[nn.Parameter]]:
        """Return the backbone's parameters: those below the first layer, then those of each.

        Parameters that several layers share are those of the lowest.
        """
        layers = [dict.fromkeys(module.parameters()) for module in self.layer_modules()]
        in_layers = {parameter for layer in layers for parameter in layer}
        depths = [[p for p in self.backbone.parameters() if p not in in_layers]]
        for layer in layers:
            depths.append([p for p in layer if p in in_layers])
            in_layers -= layer.keys()
        return depths

    def require_layers(self, layers: int, setting: str) -> None:
        """Check that the network has layers whose matrices are their own.

        Args:
            layers: how many of them, from the top.

        Raises:
            UserError: it has fewer layers, or they share their matrices with lower ones.
        """
        remedy = "leave it out" if setting == "tune.reinit_layers" else "use --strategy full"
        depths = self.parameters_by_depth()[1:]
        if layers > len(depths):
            has = f"{len(depths)} layers" if len(depths) != 1 else "one layer"
            raise UserError(f"{setting}: the model has {has}, got {layers}")
        top = depths[len(depths) - layers :]
        if not all(any(p.ndim > 1 for p in parameters) for parameters in top):
            raise UserError(f"{setting}: the layers of this model share their weights; {remedy}")

    def train_parts(self) -> None:
        """Put modules with trained parameters into training mode, others into evaluation mode."""
        self.train()
        parts = list(self.children())
        while parts:
            part = parts.pop()
            parameters = list(part.parameters())
            if parameters and not any(p.requires_grad for p in parameters):
                part.eval()
            else:
                parts += part.children()

    def count_trained(self) -> int:
        """Return the number of trained parameters."""
        return sum(map(count_trained, self.parameters()))

    @property
    def selects_positions(self) -> bool:
        """Whether the last layer's states at the positions that the head reads are enough."""
        is_all_read = self.scalar_mix is not None or self.token_head is not None
        return self.backbone.selects_positions and not is_all_read

    def run_backbone(self, batch: Batch) -> Hidden:
        """Return the backbone's states, with those of each layer if they are mixed.

        They are the encoder's if the backbone reads a source and the batch is one.
        """
        if batch.source is None and isinstance(self.backbone, SourceBackbone):
            return Hidden(self.backbone.encode(batch))
        hidden: Hidden = (
            self.backbone(batch) if self.scalar_mix is None else self.backbone.by_layer(batch)
        )
        return hidden

    def features(
        self, hidden: Hidden, rows: Tensor, columns: Tensor, lengths: Tensor | None
    ) -> Tensor:
        """Return the states that the head reads, (layers, states, width) float32.

        There is one for each output, or for each window of a text. `layers` is 1, the last layer,
        unless the layers are mixed.

        Args:
            rows: the row of each pooled position, (pooled,).
            columns: the column of each, (pooled,).
            lengths: how many positions are reduced to one for each output, (outputs,); None if
                each position has an output of its own.

        Raises:
            UserError: the layers are to be mixed and cannot be.
        """
        layers = [hidden.states] if self.scalar_mix is None else require_layers(hidden.layers)
        features = [states[rows, columns].float() for states in layers]
        if lengths is not None:
            features = [torch.segment_reduce(f, self.reduction, lengths=lengths) for f in features]
        return features[0][None] if len(features) == 1 else torch.stack(features)

    @abstractmethod
    def outputs(self, features: Tensor, windows: Tensor | None = None) -> Tensor:
        """Return the outputs to score and predict by, (outputs, labels) float32.

        Args:
            features: (layers, states, width).
            windows: how many consecutive states, those of a text's windows, are reduced to one for
                each output, (outputs,); None if each has an output of its own.
        """

    def training_outputs(
        self, features: Tensor, targets: Tensor, windows: Tensor | None = None
    ) -> Tensor:
        """Return the input of the task's loss; by default what is scored."""
        return self.scored_outputs(features, targets, windows)

    def scored_outputs(
        self, features: Tensor, targets: Tensor, windows: Tensor | None = None
    ) -> Tensor:
        """Return the outputs to score, which may tell of the targets; by default the outputs.

        Args:
            features: as in `outputs`, and `windows` too.
            targets: the target of each output, (outputs,).
        """
        return self.outputs(features, windows)

    @abstractmethod
    def initialise_head(self, seed: int) -> None:
        """Initialise what pretraining did not train."""

    @abstractmethod
    def as_model(self) -> Model | None:
        """Return the network in the form of a pretrained model; None if its head is a task's."""


class HeadNetwork(Network):
    """A backbone with the head of a task, (outputs, d_model) -> (outputs, labels)."""

    def outputs(self, features: Tensor, windows: Tensor | None = None) -> Tensor:
        """Return the head's outputs, (outputs, labels) float32, whatever the backbone's dtype."""
        with torch.autocast(features.device.type, enabled=False):
            states = features[0] if self.scalar_mix is None else self.scalar_mix(features)
            if windows is not None:
                states = self.window_pooling(states, windows)
            outputs: Tensor = self.head(states)
        return outputs

    def initialise_head(self, seed: int) -> None:
        """Initialise linear maps from a normal of `init_std`, biases with 0."""
        random = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for module in self.head.modules():
                if isinstance(module, nn.Linear):
                    normal = torch.randn(module.weight.shape, generator=random)
                    module.weight.copy_(normal * self.backbone.settings.init_std)
                    if module.bias is not None:
                        module.bias.zero_()

    def as_model(self) -> None:
        return None


def shares_parameters(head: nn.Module, backbone: nn.Module) -> bool:
    """Return whether a head is an output layer tied to the embedding of the backbone."""
    below = {id(parameter) for parameter in backbone.parameters()}
    return any(id(parameter) in below for parameter in head.parameters())
