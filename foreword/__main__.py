"""`python -m foreword` is `foreword`."""

import os
import sys

import foreword

# `-m` puts the current folder before all others, where a `numpy.py` beside somebody's texts would
# be run. It goes, or to the end where Foreword itself stands there, as in a checkout.
here = os.getcwd()  # noqa: PTH109
if not sys.flags.safe_path and sys.path[:1] == [here]:
    del sys.path[0]
    if os.path.dirname(foreword.__path__[0]) == here:  # noqa: PTH120
        sys.path.append(here)

from foreword.cli.main import main  # noqa: E402

main()
