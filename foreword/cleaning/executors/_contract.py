"""The contract of executors, the kinds in `cleaning/executors/`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from foreword.errors import UserError
from foreword.settings.ranges import Ranged

CODE = "environment"


class TasksFailedError(UserError):
    """Some tasks of a stage failed elsewhere.

    Args:
        failed: their number.
        tasks: number of tasks.
        output: file or folder with their output, or with their marks.
        cause: the cause of one of them, if it is known.
    """

    def __init__(self, failed: int, tasks: int, output: Path, cause: str = "") -> None:
        because = f"; {cause}" if cause else ""
        super().__init__(
            f"{failed} of {tasks} tasks failed{because}; {output} may say more; the same command "
            "runs them again"
        )


class Executor(Ranged, ABC):
    """Where the tasks of a stage run; its fields are its settings.

    Tasks that a run before completed are not run again. A setting named `CODE` is shell code: it is
    read from no recipe file, which may be somebody else's, and written into none.
    """

    @abstractmethod
    def run(self, blocks: list[Any], tasks: int, marks: Path) -> None:
        """Run the tasks of a stage, and wait for them.

        Args:
            blocks: datatrove's, in order.
            tasks: number of tasks.
            marks: folder for the marks of completed tasks.

        Raises:
            UserError: a package is missing, or a task found a mistake of the user.
            TasksFailedError: tasks that ran elsewhere failed.
        """
