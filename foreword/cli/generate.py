"""`foreword generate`: continue a text, or answer a source."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from foreword.cli import console
from foreword.cli._model_options import Device, Json, Run, open_model, say_unknown
from foreword.cli._options import Options
from foreword.ranges import (
    Count,
    CountOrZero,
    LengthPenalty,
    PositiveShare,
    Seed,
    Temperature,
)

if TYPE_CHECKING:
    from foreword.evaluation.beam import Beams
    from foreword.evaluation.sampling import Sampling

STOP_REASONS = {
    "end": "the model ended it",
    "tokens": "reached --tokens",
    "length": "reached the model's last position",
}


@dataclass(frozen=True)
class DecodingOptions(Options):
    """How to decode: sampling, or beam search."""

    tokens: Annotated[Count, typer.Option(help="Maximum number of new tokens.")] = 100
    temperature: Annotated[
        Temperature, typer.Option(help="Sampling temperature; 0 always takes the likeliest token.")
    ] = 0.8
    top_k: Annotated[
        CountOrZero, typer.Option(help="Sample from the k likeliest tokens; 0 for all.")
    ] = 50
    top_p: Annotated[
        PositiveShare, typer.Option(help="Sample from the likeliest tokens that sum up to p.")
    ] = 1.0
    seed: Annotated[Seed, typer.Option(help="Equal seeds give equal texts.")] = 1
    beams: Annotated[
        CountOrZero, typer.Option(help="Use beam search with this many beams; 0 samples.")
    ] = 0
    length_penalty: Annotated[
        LengthPenalty,
        typer.Option(help="With --beams: 0 prefers short texts, 1 ranks by the mean."),
    ] = 1.0

    def beam_search(self) -> Beams:
        """Return the settings of beam search."""
        from foreword.evaluation.beam import Beams

        return Beams(self.beams, self.length_penalty, self.tokens)

    def sampling(self) -> Sampling:
        """Return the settings of sampling."""
        from foreword.evaluation.sampling import Sampling

        return Sampling(self.tokens, self.temperature, self.top_k, self.top_p, self.seed)


def generate(
    run: Run,
    prompt: Annotated[str, typer.Argument(help="Text to continue, or source to answer.")],
    decoding_options: DecodingOptions,
    samples: Annotated[Count, typer.Option(help="Number of texts.")] = 1,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Continue a text, or answer a source."""
    from foreword.evaluation import beam, decoding
    from foreword.text.tokenizer import CHAT_TEMPLATE
    from foreword.tuning.predictor import is_tuned

    loaded = open_model(run, device)
    trained = loaded.trained
    say_unknown(loaded, [prompt])
    other = ""
    if (trained.run / "tokenizer" / CHAT_TEMPLATE).is_file():
        other = "on conversations, and the prompt is not one"
    elif trained.continues and is_tuned(trained.run):
        other = "to answer texts, and the prompt is continued"
    if other:
        console.say(
            f"this model was tuned {other}; 'foreword predict {run} -' answers each line that it "
            "reads"
        )
    if decoding_options.beams:
        generations = beam.generate(trained, [prompt], decoding_options.beam_search(), samples)
    else:
        generations = decoding.generate(trained, [prompt], decoding_options.sampling(), samples)
    if json:
        console.emit([asdict(generation) for generation in generations])
        return
    for n, generation in enumerate(generations, 1):
        prompt_text = generation.prompt if trained.continues else ""
        console.out.print(prompt_text + generation.text, markup=False)
        number = f"{n} of {len(generations)}: " if len(generations) > 1 else ""
        console.say(f"({number}{generation.tokens} tokens; {STOP_REASONS[generation.stopped]})")
