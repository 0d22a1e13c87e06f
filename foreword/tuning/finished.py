"""Finished seeds and trials of fine-tuning, kept until all are done: a kill loses at most one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from safetensors.torch import load_file
from torch import Tensor

from foreword.disk import atomic, manifest, stored
from foreword.errors import UserError
from foreword.train import tensor_files
from foreword.types import Array

OUTPUTS, ABOUT = "outputs", "about.json"  # a group of tensors, and the file of the values
KIND, VERSION = "finished", 1
Read = TypeVar("Read")


@dataclass(frozen=True)
class FinishedStore:
    """The finished parts of a request: a folder of values and tensors each, with a manifest.

    Attributes:
        folder: the folder of the parts of all requests; None to keep none.
        request: digest of everything that decides the results, except the part's name.
    """

    folder: Path | None = None
    request: str = ""

    def find(self, name: str, read: Callable[[Mapping[str, Any], Path], Read]) -> Read | None:
        """Return what `read` makes of a part; None if it is not there, or damaged.

        Args:
            read: takes the values of the part, and the folder of its tensors.
        """
        part = self.folder and self._part(self.folder, name)
        if part is None or not part.is_dir():
            return None
        try:
            manifest.verify(part, KIND, VERSION, [ABOUT])
            return read(stored.read(part / ABOUT), part)
        except (KeyError, OSError, UserError):
            return None  # it is done again

    def save(
        self, name: str, about: Mapping[str, Any], groups: Mapping[str, Mapping[str, Tensor]]
    ) -> None:
        """Keep a part, of which empty groups are left out.

        Raises:
            UserError: the folder cannot be written.
        """
        if self.folder is None:
            return
        files = {tensor_files.name_of(group): of for group, of in groups.items() if of}
        try:
            with atomic.folder(self._part(self.folder, name)) as part:
                known = {file: tensor_files.write(part / file, of) for file, of in files.items()}
                stored.write(part / ABOUT, about)
                manifest.write(part, KIND, VERSION, known=known)
        except UserError:
            with suppress(OSError):
                self.folder.rmdir()  # if it holds nothing
            raise

    @staticmethod
    def outputs(part: Path) -> Array | None:
        """Return the outputs among the tensors of a part, if it has some."""
        file = part / tensor_files.name_of(OUTPUTS)
        outputs: Array | None = load_file(file)[OUTPUTS].numpy() if file.exists() else None
        return outputs

    def _part(self, folder: Path, name: str) -> Path:
        return folder / f"{self.request}-{name.replace(' ', '-')}"


NOWHERE = FinishedStore()
