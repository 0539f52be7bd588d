"""Signals: the first ends the work in good order, the second at once, none with a
traceback.
"""

import signal
import socket
import time
from collections.abc import Iterator
from functools import partial
from subprocess import PIPE

import pytest

from ropelab.cli import outcome
from ropelab.runs import interrupts
from tests import processes
from tests.processes import wait_until
from tests.texts import mentions

LONG = """
import hashlib, sys
from ropelab.cli import outcome
from ropelab.runs import interrupts

def one_long_call():
    with interrupts.hold_first_signal() as arrived:
        print("inside", flush=True)
        hashlib.pbkdf2_hmac("sha256", b"x", b"y", 2_000_000_000)

sys.exit(outcome.run_for_status(one_long_call))
"""


started = partial(processes.started, stdout=PIPE, stderr=PIPE)


@pytest.mark.processes
@pytest.mark.parametrize(
    "which",
    [signal.SIGINT, signal.SIGTERM, signal.SIGHUP],
    ids=lambda which: which.name,
)
def test_a_second_signal_ends_what_python_cannot_interrupt(which):
    with started("-c", LONG) as process:
        assert process.stdout.readline() == "inside\n"
        process.send_signal(which)
        time.sleep(2 * interrupts.SECONDS_APART)
        assert process.poll() is None

        def ends():
            process.send_signal(which)
            return process.poll() is not None

        # More than once: if the first is noticed late, the next one counts as the same.
        wait_until(ends)
        _, err = process.communicate(timeout=600)
    assert process.returncode == 128 + which
    (line,) = err.splitlines()
    assert mentions(line, "ropelab:", "stopped at once", "the same command continues")


INTERRUPTED_IMPORT = """
import signal, sys

_, module, *sys.argv = sys.argv

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == module:
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
from ropelab.__main__ import main
main()
"""


@pytest.mark.processes
@pytest.mark.parametrize(
    "module", ["pydantic", "typer", "ropelab.cli.app", "numpy", "pandas", "matplotlib"]
)
def test_ctrl_c_during_an_import_shows_no_traceback(tmp_path, module):
    command = ["ropelab", "freqs", "--results", str(tmp_path / "results")]
    with started("-c", INTERRUPTED_IMPORT, module, *command) as process:
        _, err = process.communicate(timeout=600)
    assert process.returncode == 130
    # Progress may have been shown before the module was needed.
    assert err.splitlines()[-1].startswith("ropelab: ")
    assert "Traceback" not in err
    # Finished cells are kept; a run is there whole or not at all.
    assert not list(tmp_path.glob("results/[!.]*/*/*"))


IN_EXEC = """
import sys
from ropelab.cli import outcome
sys.exit(outcome.run_for_status(lambda: exec("raise KeyboardInterrupt")))
"""


@pytest.mark.processes
def test_the_status_is_kept_wherever_the_interrupt_came(tmp_path):
    (tmp_path / "inside.py").write_text(IN_EXEC)
    with started("-m", "inside", cwd=tmp_path) as process:
        _, err = process.communicate(timeout=600)
    assert process.returncode == 130
    assert err.startswith("ropelab: interrupted")


@pytest.mark.parametrize(
    ("which", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)]
)
def test_a_held_signal_is_told_and_its_status_kept(which, status, capsys):
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)

    def command():
        with interrupts.hold_first_signal() as arrived:
            assert not arrived()
            signal.raise_signal(which)
            assert arrived()
        raise KeyboardInterrupt

    assert outcome.run_for_status(command) == status
    assert capsys.readouterr().err.startswith("ropelab: interrupted;")
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


@pytest.fixture
def heard() -> Iterator[None]:
    # Tests that run in the background inherit that Ctrl-C is ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heard")
def test_an_error_that_an_interrupt_ended_in_is_an_interrupt(capsys):
    """Python 3.11 makes a RuntimeError of what __set_name__ raises, as in an import."""

    def command():
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt as interrupt:
            raise RuntimeError("Error calling __set_name__") from interrupt

    assert outcome.run_for_status(command) == 130
    assert capsys.readouterr().err.startswith("ropelab: interrupted;")


@pytest.mark.processes
def test_ctrl_c_in_training_keeps_the_step(tmp_path, corpora):
    (tmp_path / "long.toml").write_text(
        'experiment = "encodings"\nencodings = "nope"\ntrain_len = 64\ntest_len = 128\n'
        f'head_dim = 16\nsteps = 9999\ndocuments = 2\ncorpus = "{corpora[0]}"\n'
    )
    command = ["-m", "ropelab", "run", "long.toml", "--workers", "1"]
    with started(*command, cwd=tmp_path) as process:
        assert any("loss" in line for line in process.stderr)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=600)
    assert process.returncode == 130
    assert err.splitlines()[-1].startswith("ropelab: interrupted;")
    assert (
        len(list(tmp_path.glob("results/.cells/model/*/checkpoint.safetensors"))) == 1
    )


def test_what_is_ignored_stays_ignored():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interrupts.handle_signals():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
            signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_second_ctrl_c_is_let_through_where_nobody_watches():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with (
            pytest.raises(KeyboardInterrupt),
            interrupts.hold_first_signal() as arrived,
        ):
            signal.raise_signal(signal.SIGINT)
            assert arrived()
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(("between", "leaves"), [(0.01, False), (60.0, True)])
def test_a_second_signal_ends_the_process_unless_it_came_with_the_first(
    monkeypatch: pytest.MonkeyPatch, between: float, leaves: bool
) -> None:
    """A terminal and a parent may both send a signal for one Ctrl-C."""
    left: list[int] = []
    seconds = iter((1000.0, 1000.0 + between))
    monkeypatch.setattr(interrupts, "leave", left.append)
    monkeypatch.setattr(time, "monotonic", lambda: next(seconds))

    ours, theirs = socket.socketpair()
    theirs.send(bytes([signal.SIGINT, signal.SIGINT]))
    theirs.close()
    interrupts._watch(ours)
    assert left == ([signal.SIGINT] if leaves else [])


def test_a_signal_before_the_block_begins_leaves_nothing_changed(monkeypatch):
    """As if Ctrl-C came while the thread of the second signal is started."""
    before = (signal.getsignal(signal.SIGINT), signal.set_wakeup_fd(-1))
    signal.set_wakeup_fd(before[1])

    def stop(thread):
        raise KeyboardInterrupt

    monkeypatch.setattr("threading.Thread.start", stop)
    with pytest.raises(KeyboardInterrupt), interrupts.handle_signals():
        pytest.fail("the block has begun")
    after = (signal.getsignal(signal.SIGINT), signal.set_wakeup_fd(-1))
    signal.set_wakeup_fd(after[1])
    assert after == before
