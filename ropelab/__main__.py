"""The `ropelab` command, also as `python -m ropelab`.

Signals are handled from the first moment, before anything slow is imported.
"""

import os
import sys
from pathlib import Path

from ropelab.runs import interrupts
from ropelab.runs.errors import ignore_warnings, report_defect


def main() -> None:
    """Run the command line and exit with its status."""
    interrupts.leave_at_once()
    ignore_warnings()
    # Figures are only written to files. A matplotlib backend or style that the user has
    # set must not change the figures, or make the import of matplotlib fail.
    os.environ["MPLBACKEND"] = "agg"
    os.environ["MATPLOTLIBRC"] = str(Path(__file__).with_name("matplotlibrc"))
    try:
        from ropelab.cli import app as cli
    except (ImportError, MemoryError, OSError) as error:
        sys.exit(report_defect(error))
    cli.main()


if __name__ == "__main__":
    main()
