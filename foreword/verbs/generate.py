"""`foreword generate`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from foreword.display import lines
from foreword.display.results import Part, Result, Text
from foreword.errors import quoted_command
from foreword.settings.ranges import Count
from foreword.verbs._contract import ARGUMENT, Verb
from foreword.verbs._groups import Decodes, ReadsModel

if TYPE_CHECKING:
    from foreword.evaluation.decoding import Generation

STOP_REASONS = {
    "end": "the model ended it",
    "tokens": "reached --tokens",
    "length": "reached the model's last position",
}


@dataclass(frozen=True, repr=False)
class GeneratedResult(Result):
    """Texts that a model wrote.

    Attributes:
        generations: the texts, each with its prompt and why it ended.
        continues: whether they continue the prompt, and do not answer it.
    """

    generations: list[Generation]
    continues: bool

    def tables(self) -> Sequence[Part]:
        """Return each text, and its length."""
        parts: list[Part] = []
        for n, generation in enumerate(self.generations, 1):
            parts += [f"step {n:>3}  {text}" for n, text in enumerate(generation.steps, 1)]
            parts.append(Text(generation.prompt * self.continues + generation.text))
            number = f"{n} of {len(self.generations)}: " if len(self.generations) > 1 else ""
            reason = STOP_REASONS[generation.stopped]
            parts.append(f"({number}{generation.tokens} tokens; {reason})")
        return parts

    def data(self) -> list[dict[str, Any]]:
        """Return each text with its prompt."""
        return [
            {key: value for key, value in asdict(one).items() if key != "steps" or value}
            for one in self.generations
        ]


@dataclass(frozen=True)
class Generate(Decodes, ReadsModel, Verb[GeneratedResult]):
    """Continue a text, or answer a source.

        foreword.generate("runs/gpt", "In the beginning", temperature=0.8)

    Attributes:
        prompt: text to continue, or source to answer.
        samples: number of texts.
        show_steps: of a model of masked diffusion, show the text after each step too.
    """

    prompt: Annotated[str, ARGUMENT]
    samples: Count = 1
    show_steps: bool = False

    def __call__(self) -> GeneratedResult:
        from foreword.evaluation import beam, decoding
        from foreword.text.tokenizer import CHAT_TEMPLATE
        from foreword.tuning.tuned_folder import is_tuned

        loaded = self.opened()
        trained = loaded.trained
        self.say_unknown(loaded, self.prompt)
        other = ""
        if (Path(trained.run) / "tokenizer" / CHAT_TEMPLATE).is_file():
            other = "on conversations, and the prompt is not one"
        elif not trained.answers and is_tuned(trained.run):
            other = "to answer texts, and the prompt is continued"
        if other:
            lines.say(
                f"this model was tuned {other}; {quoted_command('predict', self.run, '-')} answers "
                "each line that it reads"
            )
        if self.beams:
            self.refuse(("steps", "block", "show_steps"), "cannot be combined with --beams")
            texts = beam.generate(trained, [self.prompt], self.beam_search(), self.samples)
        else:
            prompts, sampling = [self.prompt], self.sampling()
            texts = decoding.generate(
                trained, prompts, sampling, self.samples, with_steps=self.show_steps
            )
        return GeneratedResult(list(texts), trained.continues or trained.unmasks)
