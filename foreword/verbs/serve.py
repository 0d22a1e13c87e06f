"""`foreword serve`."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Interval

from foreword.display import lines
from foreword.display.results import Output
from foreword.errors import UserError
from foreword.settings.ranges import Count
from foreword.verbs._arguments import paths
from foreword.verbs._contract import Flag, Paths, Verb
from foreword.verbs._groups import Computes

if TYPE_CHECKING:
    from foreword.serving.app import Server
    from foreword.serving.served import Capacity, Served

TOKEN = "FOREWORD_TOKEN"  # a variable of the environment
Port = Annotated[int, Interval(ge=0, le=65535)]
Texts = Annotated[int, Interval(ge=1, le=1024)]
RUNS = Flag(is_argument=True, metavar="RUN...")


@dataclass(frozen=True)
class Serve(Computes, Verb[Output]):
    """Serve models over HTTP, in the dialect that OpenAI's clients speak.

        foreword.serve(["runs/gpt", "runs/books/tuned/reviews"], port=8000)

    At / it has the page that 'foreword app' opens. It answers /v1/completions,
    /v1/chat/completions, /v1/embeddings, /fill, /score, /predict, /translate, /inspect/...,
    /v1/models, /health and /metrics; /openapi.json describes all requests, and docs/serve.md shows
    them. A signal ends it (Ctrl-C, SIGTERM), once what is begun is finished.

    Attributes:
        runs: run folders, checkpoints, or folders that 'foreword tune' wrote.
        name: what requests call a model, in the order of the runs, repeatable; default: the name of
            its folder.
        host: address to listen at; of any but 127.0.0.1, other machines can ask, and a token is
            required.
        port: port to listen at; 0 for a free one.
        token: requests must bring it: 'Authorization: Bearer TOKEN'; default: FOREWORD_TOKEN in the
            environment, which other users of the machine cannot read.
        origin: site of one page that may ask from a browser, such as http://localhost:3000.
        together: most texts that a model generates at the same time.
        queue: most requests that wait for a model; others are told to come again (429).
        length: most tokens of a text with its prompt; default: the positions of the model.
        body_bytes: most bytes of a request.
        precision: precision to compute in: fp32, bf16 or auto.
    """

    runs: Annotated[Paths, RUNS]
    _: KW_ONLY
    name: Sequence[str] = ()
    host: str = "127.0.0.1"
    port: Port = 8000
    token: str | None = None
    origin: str | None = None
    together: Texts = 32
    queue: Count = 64
    length: Count | None = None
    body_bytes: Count = 1 << 20
    precision: str = "fp32"

    def __call__(self) -> Output:
        return self.serve(lambda url: None)

    def serve(
        self,
        ready: Callable[[str], object],
        *,
        watches: bool = False,
        can_control: bool = False,
    ) -> Output:
        """Serve until a signal ends it.

        Args:
            ready: called with the address, once the server listens and before it answers.
            watches: whether there may be folders without a model yet: of runs that have saved
                nothing, and of comparisons.
            can_control: whether the page may stop and resume training.

        Raises:
            UserError: it cannot listen there, or a model cannot be served.
        """
        from foreword.process.extras import require_packages

        require_packages(["starlette", "uvicorn"], "'foreword serve' requires", "serve")
        from foreword.serving import app, pages, run
        from foreword.serving.guard import Guard

        # Check what is cheap first.
        token = self.token or os.environ.get(TOKEN) or None
        guard = Guard(self.host, token, self._origin())
        if not guard.is_local and token is None:
            raise UserError(
                f"--host {self.host}: opens the models to every machine that reaches this one; "
                f"give a --token that requests must bring, or set {TOKEN}"
            )
        if token is not None and not re.fullmatch("[!-~]+", token):
            raise UserError("--token: a header carries letters, digits and signs of ASCII alone")
        names = self.names()
        listening = run.listen(self.host, self.port)
        with listening:
            # Open the models, and serve them.
            server = self.server(names, watches=watches, can_control=can_control)
            address = f"[{self.host}]" if ":" in self.host else self.host
            url = f"http://{address}:{listening.getsockname()[1]}"
            for model in server.models.values():
                lines.say(f"{model.name}: {', '.join(model.abilities)}")
            whom = (
                "this machine alone" if guard.is_local else "all that reach it and have the token"
            )
            lines.say(f"serving at {url}, to {whom}; Ctrl-C ends it")
            try:
                listening.listen()  # a browser waits until the first answer
                ready(url)
                run.run(app.application(server, guard, pages.routes()), listening, lines.say)
            finally:
                server.close()
        return _counted(server.metrics.requests)

    def server(
        self, names: Sequence[str], *, watches: bool = False, can_control: bool = False
    ) -> Server:
        """Return a server of the models, which it opens, and of the runs that can be watched.

        Raises:
            UserError: a model cannot be served, or there is too little memory.
        """
        from foreword.evaluation.memory_check import require_memory_to_serve
        from foreword.serving.app import Server
        from foreword.serving.served import Capacity
        from foreword.serving.watched import Watched, is_watchable

        capacity = Capacity(self.together, self.queue, self.length)
        served, watched = [], []
        for folder, name in zip(paths(self.runs), names, strict=True):
            if is_watchable(Path(folder)):
                watched.append(Watched(name, Path(folder).resolve(), can_control=can_control))
                if watches and not watched[-1].has_model:
                    continue
            served.append(self._opened(folder, name, capacity))
        writers = [writer for model in served if (writer := model.writes) is not None]
        require_memory_to_serve(writers, self.together)
        return Server(served, self.body_bytes, watched)

    def _origin(self) -> str | None:
        """Return the site of the page that may ask."""
        if self.origin is None or re.fullmatch(r"https?://[^/\s*]+", self.origin):
            return self.origin
        raise UserError(
            f"--origin {self.origin}: expected scheme and host, such as http://localhost:3000"
        )

    def names(self) -> list[str]:
        """Return the name of each model.

        Raises:
            UserError: two are the same, or there are more or fewer than models.
        """
        folders = [Path(folder).resolve() for folder in paths(self.runs)]
        names = list(self.name) or [_name(folder) for folder in folders]
        if len(names) != len(folders):
            raise UserError(f"--name: {len(names)} for {len(folders)} runs; give one for each")
        for name, count in Counter(names).items():
            if not name:
                raise UserError("--name: must not be empty")
            if count > 1:
                raise UserError(f"{count} runs are called '{name}'; tell them apart by --name")
        return names

    def _opened(self, folder: str, name: str, capacity: Capacity) -> Served:
        """Return a model, and say what was skipped on the way."""
        from foreword.serving.served import Served
        from foreword.verbs._load import load

        opened: Any = load(folder, self.device, self.precision)
        for note in getattr(getattr(opened, "trained", None), "notes", ()):
            lines.say(note)
        return Served(name, opened, capacity)


def _name(folder: Path) -> str:
    """Return the name of a folder; of a checkpoint, with that of its run."""
    is_checkpoint = folder.parent.name == "checkpoints"
    return f"{folder.parent.parent.name}-{folder.name}" if is_checkpoint else folder.name


def _counted(requests: Counter[tuple[str, int]]) -> Output:
    rows = [
        {"path": path, "status": status, "requests": n}
        for (path, status), n in sorted(requests.items())
    ]
    total = requests.total()
    return Output([f"answered {total:,} request{'s' * (total != 1)}"], {"requests": rows})
