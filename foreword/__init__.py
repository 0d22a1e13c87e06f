"""Foreword pretrains language models of every classic family on your own text."""

# Nothing is imported here: under `python -m foreword`, the current folder is searched first until
# `foreword.__main__` takes it off the path.
TYPE_CHECKING = False
if TYPE_CHECKING:
    import os

    from foreword.evaluate.loaded import LoadedModel

__version__ = "0.1.0"


def load(
    path: "str | os.PathLike[str]", device: str = "auto", precision: str = "fp32"
) -> "LoadedModel":
    """Open a trained model: `foreword.load("runs/x").fill("The [MASK] sat.")`.

    Args:
        path: a run folder, or one of its `checkpoints/step-*`.
        device: auto, cpu, cuda or mps.
        precision: fp32, bf16 or auto.

    Raises:
        UserError: no such folder, no whole checkpoint, or no such device.
    """
    # Imported when called: `import foreword` stays light, and lower layers may import it.
    import importlib

    loading = importlib.import_module("foreword.evaluate.loaded")
    loaded: LoadedModel = loading.load(path, device, precision)
    return loaded
