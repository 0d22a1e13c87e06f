"""The files of a model folder: those with its weights, and those that nothing reads."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from foreword.disk import stored
from foreword.errors import UserError
from foreword.interop.hf_config import FILE as CONFIG

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
ADAPTER = "adapter_config.json"
EXPORT = ("export", 1)  # kind and version of the manifest of an exported run
DOWNLOADED = (".json", ".safetensors", ".txt", ".model")  # what its manifest lists

# Other forms of weights, by how their names end, and what to do about them.
_PICKLE = (
    "a pickle, which can run any code when it is read; on an isolated machine, load it "
    "with transformers"
)
_OLD = "which only transformers before 5 reads; load it there"
OTHER_FORMS = {
    **dict.fromkeys((".bin", ".pt", ".pth", ".ckpt"), _PICKLE),
    ".h5": f"weights of TensorFlow, {_OLD} with from_pretrained(FOLDER, from_tf=True)",
    ".msgpack": f"weights of Flax, {_OLD} with from_pretrained(FOLDER, from_flax=True)",
}
# Files beside the weights that are read elsewhere, or do not affect what is computed.
KNOWN = (
    CONFIG,
    INDEX,
    "added_tokens.json",
    "chat_template.jinja",
    "foreword.toml",
    "generation_config.json",
    "manifest.json",
    "merges.txt",
    "sentencepiece.bpe.model",
    "special_tokens_map.json",
    "spiece.model",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "vocab.json",
    "vocab.txt",
)
DOCUMENTS = (".", "LICENSE", "README")  # prefixes of other files that need no remark


def with_weights(folder: Path) -> dict[str, set[str]]:
    """Return the files with the weights, and the tensors that the index lists for each.

    Raises:
        UserError: there are none, or only in an unsupported format; the index is broken; or the
            folder also holds an adapter, or weights that no index lists.
    """
    if (folder / ADAPTER).is_file():
        raise UserError(
            f"{folder / ADAPTER}: adapters, which change what a model computes, are not supported; "
            "merge it into the weights first (merge_and_unload of peft), or import a folder "
            "without it"
        )
    files = {WEIGHTS: set[str]()} if (folder / WEIGHTS).is_file() else _indexed(folder)
    for file in sorted(path.name for path in folder.glob("*.safetensors")):
        if file not in files:
            raise UserError(
                f"{folder / file}: more weights, which neither {sorted(files)[0]} nor {CONFIG} "
                "mentions; import a folder without them"
            )
    return files


def _indexed(folder: Path) -> dict[str, set[str]]:
    index = folder / INDEX
    if not index.is_file():
        raise _without_weights(folder)
    table = stored.read(index, is_foreign=True)
    try:
        file_of: dict[str, str] = table["weight_map"]
        files: dict[str, set[str]] = {}
        for name, file in file_of.items():
            files.setdefault(Path(file).name, set()).add(name)
    except (KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{index}: cannot be read: {error!r}") from error
    return files


def _without_weights(folder: Path) -> UserError:
    """Return the error for a folder without readable weights."""
    for ending, advice in OTHER_FORMS.items():
        if others := sorted(path.name for path in folder.glob(f"*{ending}")):
            return UserError(
                f"{folder}: holds no {WEIGHTS}, only {others[0]}, {advice}, and save it again with "
                f"save_pretrained(FOLDER), which writes {WEIGHTS}"
            )
    return UserError(f"{folder}: holds no {WEIGHTS}")


def unread(folder: Path, parts: Iterable[str]) -> list[str]:
    """Return the names in a model folder that nothing reads, sorted; a folder as `name/`.

    Args:
        folder: the model folder.
        parts: subfolders that are read too.
    """
    known = {*with_weights(folder), *KNOWN, *parts}
    return [
        path.name + ("/" if path.is_dir() else "")
        for path in sorted(folder.iterdir())
        if path.name not in known and not path.name.startswith(DOCUMENTS)
    ]
