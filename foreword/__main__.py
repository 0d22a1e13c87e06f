"""The entry point of `foreword` and `python -m foreword`."""

import os
import sys

import foreword


def main() -> None:
    """Run the command line."""
    _leave_out_current_folder()
    import signal  # only now that the path is safe

    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # until a verb begins, Ctrl-C just ends it
    from foreword.cli.main import main as run

    run()


def _leave_out_current_folder() -> None:
    """Import nothing from the current folder, where a `numpy.py` may lie beside somebody's texts.

    `python -m` puts it first on the path, and an empty part of PYTHONPATH, as in
    `PYTHONPATH=$PYTHONPATH:/mine`, stands for it. It is removed, or moved to the end if Foreword
    itself is in it, as in a checkout; one that PYTHONPATH names stays.
    """
    try:
        here = os.getcwd()  # noqa: PTH109
    except OSError:  # it was removed
        return
    if __name__ == "__main__" and not sys.flags.safe_path and sys.path[:1] == [here]:
        del sys.path[0]
    whole = os.environ.get("PYTHONPATH", "")
    parts = [part for part in whole.split(os.pathsep) if part]
    if os.pathsep.join(parts) != whole:
        os.environ["PYTHONPATH"] = os.pathsep.join(parts)  # for processes that are started
        if here not in map(os.path.abspath, parts):
            sys.path[:] = [path for path in sys.path if path != here]
    if os.path.dirname(foreword.__path__[0]) == here and here not in sys.path:  # noqa: PTH120
        sys.path.append(here)


if __name__ == "__main__":
    main()
