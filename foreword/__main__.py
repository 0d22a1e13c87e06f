"""`foreword`, and `python -m foreword`."""

import os
import sys

import foreword


def main() -> None:
    """Runs the command line."""
    import signal  # not before the path is in order, see below

    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # until a verb begins, Ctrl-C just ends it
    from foreword.cli.main import main as run

    run()


if __name__ == "__main__":
    # `-m` puts the current folder before all others, where a `numpy.py` beside somebody's texts
    # would be run. It goes, or to the end where Foreword itself stands there, as in a checkout.
    here = os.getcwd()  # noqa: PTH109
    if not sys.flags.safe_path and sys.path[:1] == [here]:
        del sys.path[0]
        if os.path.dirname(foreword.__path__[0]) == here:  # noqa: PTH120
            sys.path.append(here)
    main()
