"""Code of the user that ends the process, prints, or changes what it is given.

A method runs in a process of `ropelab freqs --json`. The document on stdout has the right
tables, or there is none and one line says why.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.stress.bench import Told
from tests.stress.promise import Trial, one_line

MODULE = """
import atexit, os, posix, signal, subprocess, sys, threading, warnings
from dataclasses import dataclass
import numpy
from ropelab.math.scaling import RopePlan, Scaling

{at_import}

@dataclass(frozen=True, kw_only=True)
class Method(Scaling):
    factor: float = 1.0
    default_factors = (1.0,)

    def plan(self, geometry, length):
        {in_plan}
        return RopePlan(geometry.inv_freq / self.factor)
"""
ENDS = (
    *("os._exit(0)", "os._exit(7)", "posix._exit(0)", "sys.exit(0)", "sys.exit()"),
    *("raise SystemExit", "raise KeyboardInterrupt", "raise GeneratorExit"),
    *('os.execv("/bin/true", ["true"])', 'os.execlp("true", "true")'),
    *('os.execve("/bin/true", ["true"], {})', "raise BaseException"),
    *("raise BrokenPipeError(32, 'x')", "raise MemoryError", "raise StopIteration"),
    *("f = lambda: f(); f()", "exec('(' * 500)", "exit(0)", "quit()", "os.close(0)"),
    "t = threading.Thread(target=lambda: os._exit(0)); t.start(); t.join()",
)
HARMLESS = (
    *('print("x")', 'sys.__stdout__.write("x")', 'os.write(1, b"x")'),
    *('subprocess.run(["echo", "x"])', 'os.system("echo x")'),
    *('print("x", file=sys.stderr)', 'warnings.warn("x")', "sys.stdout.close()"),
    *("sys.stdout = None", 'os.chdir("/")', "os.environ.clear()"),
    *("if os.fork() == 0: os._exit(0)", "atexit.register(os._exit, 0)"),
    *("atexit.register(lambda: os._exit(0))", 'numpy.seterr(all="raise")'),
    *("sys.path.clear()", "sys.argv.clear()", "sys.settrace(lambda *event: None)"),
    *("signal.signal(signal.SIGINT, signal.SIG_IGN)", "os.umask(0o777)"),
)
"""Lines after which the answer has to be there all the same."""
CHANGES = (
    'object.__setattr__(geometry, "base", 77.0)',
    'object.__setattr__(geometry, "trained_len", 77)',
    'object.__setattr__(self, "factor", 77.0)',
    'vars(self)["factor"] = 77.0',
    "geometry.inv_freq[:] = 77.0",
    "geometry.__class__ = tuple",
    "RopePlan = None; return None",
    "return RopePlan(numpy.ma.masked_array(geometry.inv_freq, geometry.inv_freq > 0))",
    "return RopePlan(geometry.inv_freq * 1j)",
    "return RopePlan(-geometry.inv_freq)",
    "return RopePlan(geometry.inv_freq[:1])",
    "return RopePlan(geometry.inv_freq, attention_factor=float('nan'))",
)
EVERY = 18
"""Of the small part each so many is tried."""


def trials(folder: Path, few: bool) -> Iterator[Trial]:
    """Each line when the module is imported and when its method is called."""
    right = run(folder, "", "")
    cases = []
    for line in (*ENDS, *HARMLESS):
        cases.append((line, line, ""))
        cases.append((line, "", line))
    cases += [(line, "", line) for line in CHANGES]

    for what, at_import, in_plan in cases[:: EVERY if few else 1]:
        told = run(folder, at_import, in_plan)
        problems = list(judge(told, right, what in HARMLESS))
        place = "imported" if at_import else "called"
        yield Trial(f"{place}: {what}", "; ".join(problems))


def run(folder: Path, at_import: str, in_plan: str) -> Told:
    """What a command tells whose method has these lines."""
    text = MODULE.format(at_import=at_import, in_plan=in_plan or "pass")
    (folder / "hostile.py").write_text(text)
    command = ["--method", "hostile:Method(factor=2)", "--head-dim", "8", "--json"]
    return type_command(folder, ["freqs", *command, "--force"], {})


def type_command(
    folder: Path, command: list[str], environment: Mapping[str, str]
) -> Told:
    """What `ropelab` tells in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "ropelab", *command],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        errors="replace",
    )
    return Told(done.returncode, done.stdout, done.stderr)


def judge(told: Told, right: Told, is_harmless: bool = False) -> Iterator[str]:
    """Problems of an answer beside the right one."""
    if told.status == 0:
        try:
            tables = json.loads(told.out)["tables"]
        except ValueError:
            yield f"no document: {told.out[:80]!r}"
            return
        if tables != json.loads(right.out)["tables"]:
            yield "other tables"
        return

    if is_harmless:
        yield f"no answer: {told.err!r}"
    if told.out:
        yield f"status {told.status} with {told.out[:80]!r}"
    # A KeyboardInterrupt is an interrupt.
    if told.status != 130:
        yield from one_line(told)
