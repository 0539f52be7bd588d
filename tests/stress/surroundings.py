"""What surrounds a process: variables of the environment, limits, closed streams.

The document of `ropelab freqs --json` is the right one, or one line says why there is
none.
"""

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import run

from tests.stress.bench import Told
from tests.stress.code import judge, type_command
from tests.stress.promise import Trial

VARIABLES = (
    *({"COLUMNS": text} for text in ("0", "1", "10", "-1", "abc", "99999999")),
    *({"TERM": text} for text in ("", "dumb", "nonsense")),
    *({"LC_ALL": text, "PYTHONUTF8": "0"} for text in ("C", "POSIX", "xx_YY.bad")),
    *({"TZ": text} for text in ("Nonsense/Where", ":", "UTC+99")),
    *({"HOME": text} for text in ("", "/proc/nowhere", "/dev/null")),
    *({"TMPDIR": text} for text in ("/proc/nowhere", "/dev/null", "")),
    *({"XDG_CACHE_HOME": text} for text in ("/dev/null", "/proc/nowhere")),
    *({"MPLCONFIGDIR": text} for text in ("/dev/null", "/proc/nowhere")),
    *({"MPLBACKEND": text} for text in ("nonsense", "tkagg")),
    *({"PYTHONOPTIMIZE": text} for text in ("1", "2")),
    *({"PYTHONHASHSEED": text} for text in ("0", "7", "4294967295")),
    *({"PYTHONIOENCODING": text} for text in ("ascii", "cp437", "latin-1:strict")),
    *({"OMP_NUM_THREADS": text} for text in ("0", "-1", "abc")),
    *({"SOURCE_DATE_EPOCH": text} for text in ("abc", "0", "-1")),
    *({"NO_COLOR": "1", "FORCE_COLOR": "1"}, {"PYTHONWARNINGS": "error"}),
    *({"PYTHONDONTWRITEBYTECODE": "1"}, {"PYTHONUNBUFFERED": "1"}),
    *({"PYTHONDEVMODE": "1"}, {"PATH": ""}, {"LINES": "abc", "COLUMNS": "abc"}),
)
LIMITS = (
    *("-n 6", "-n 8", "-n 10", "-n 14", "-n 20", "-f 0", "-f 1", "-f 4", "-f 64"),
    *("-s 128", "-s 512", "-v 400000", "-v 800000", "-c 0"),
)
STREAMS = (*("<&-", "2>&-", "<&- 2>&-", "< /dev/null", "2> /dev/full", "< /dev/zero"),)
EVERY = 13
"""Of the small part each so many is tried."""


def trials(folder: Path, few: bool) -> Iterator[Trial]:
    """Each variable, limit and stream alone."""
    command = ["freqs", "--head-dim", "8", "--json", "--force"]
    right = type_command(folder, command, {})
    step = EVERY if few else 1
    for variables in VARIABLES[::step]:
        told = type_command(folder, command, variables)
        yield Trial(str(variables), "; ".join(judge(told, right)))

    words = shlex.join([sys.executable, "-m", "ropelab", *command])
    lines = [f"ulimit {limit}; {words}" for limit in LIMITS]
    lines += [f"{words} {stream}" for stream in STREAMS]
    for line in lines[::step]:
        # stdout is a pipe, which no limit of files touches.
        done = run(["bash", "-c", line], cwd=folder, capture_output=True, text=True)
        told = Told(done.returncode, done.stdout, done.stderr)
        yield Trial(line.replace(words, "..."), "; ".join(judge(told, right)))
