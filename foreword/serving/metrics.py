"""Counts of a server as Prometheus reads them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from foreword.serving.worker import ModelWorker

OF_MODELS = ("prompt_tokens", "new_tokens", "steps")


class Metrics:
    """Counts of requests, in the event loop's thread alone.

    Attributes:
        requests: by path and status of the answer.
        seconds: until all was answered, or a stream began, by path.
        first_seconds: to the first piece of a stream, by path.
    """

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()
        self.seconds: dict[str, float] = {}
        self.first_seconds: dict[str, float] = {}

    def text(self, workers: Mapping[str, ModelWorker]) -> str:
        """Return all counts, in Prometheus's format."""
        rows: dict[str, dict[str, float]] = {
            "requests_total": {
                f'path="{path}",status="{status}"': n for (path, status), n in self.requests.items()
            },
            "request_seconds_total": {f'path="{p}"': s for p, s in self.seconds.items()},
            "first_piece_seconds_total": {f'path="{p}"': s for p, s in self.first_seconds.items()},
        }
        escapes = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
        models = {f'model="{n.translate(escapes)}"': worker for n, worker in workers.items()}
        for name in OF_MODELS:
            rows[f"{name}_total"] = {key: worker.counts[name] for key, worker in models.items()}
        rows["texts"] = {key: worker.texts for key, worker in models.items()}
        rows["waiting"] = {key: worker.waiting for key, worker in models.items()}
        lines = []
        for name, values in rows.items():
            kind = "counter" if name.endswith("_total") else "gauge"
            lines.append(f"# TYPE foreword_{name} {kind}")
            lines += [f"foreword_{name}{{{labels}}} {value:g}" for labels, value in values.items()]
        return "\n".join(lines) + "\n"


def add(seconds: dict[str, float], path: str, more: float) -> None:
    """Add seconds to those of a path."""
    seconds[path] = seconds.get(path, 0.0) + more
