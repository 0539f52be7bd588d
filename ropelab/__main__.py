"""`python -m ropelab` is the `ropelab` command; it can be interrupted from its first
moment.
"""

import sys

from ropelab.runs import interrupts
from ropelab.runs.errors import defect


def main() -> None:
    """Run the command line; nothing heavy is imported before signals are heard."""
    interrupts.leave_at_once()
    try:
        from ropelab.cli import app as cli
    except (ImportError, MemoryError, OSError) as error:
        sys.exit(defect(error))
    cli.main()


if __name__ == "__main__":
    main()
