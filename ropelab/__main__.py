"""`python -m ropelab` is the `ropelab` command; it can be interrupted from its first
moment.
"""

import os
import sys
from pathlib import Path

from ropelab.runs import interrupts
from ropelab.runs.errors import defect, ignore_warnings


def main() -> None:
    """Run the command line; nothing heavy is imported before signals are heard."""
    interrupts.leave_at_once()
    ignore_warnings()
    # Pictures are files here: neither a backend for windows or notebooks nor a style
    # of the user's may change them, or stop the library that draws them.
    os.environ["MPLBACKEND"] = "agg"
    os.environ["MATPLOTLIBRC"] = str(Path(__file__).with_name("matplotlibrc"))
    try:
        from ropelab.cli import app as cli
    except (ImportError, MemoryError, OSError) as error:
        sys.exit(defect(error))
    cli.main()


if __name__ == "__main__":
    main()
