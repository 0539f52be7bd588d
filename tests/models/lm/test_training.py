"""Training: the same weights whatever interrupts it, and no silence when it fails."""

import errno
import math
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from ropelab.math.frequencies import Geometry
from ropelab.math.scaling import RopePlan
from ropelab.models.encoding.base import Encoding
from ropelab.models.encoding.rope import Rope
from ropelab.models.lm import training
from ropelab.models.lm.model import LanguageModel, ModelSize
from ropelab.models.lm.source import Batch, make_periodic_batch
from ropelab.models.lm.training import (
    CHECKPOINT,
    Recipe,
    check_finite,
    count_operations_per_token,
    set_gradients,
    train,
)
from ropelab.runs.cell import Advance, silent
from ropelab.runs.errors import MachineError
from ropelab.runs.folders import replace_file
from ropelab.runs.machine import DtypeName, use_torch_defaults
from tests.processes import started, wait_until
from tests.texts import mentions

RECIPE = Recipe(steps=12, window=32, tokens_per_step=128, warmup=2, first_window=8)
PROGRESS = partial(silent, "training")


def fresh_model() -> LanguageModel:
    size = ModelSize(vocabulary=128, layers=1, width=16, heads=2, head_dim=8)
    return LanguageModel(size, Rope(RopePlan(Geometry(8, 1e4, 32).inv_freq)), seed=0)


def batches(step: int, window: int, rows: int) -> Batch:
    """Periodic rows of symbols: what can be learned in a few steps."""
    return make_periodic_batch(
        np.random.default_rng((step, window, rows)), window, rows
    )


def trained(
    folder: Path,
    recipe: Recipe = RECIPE,
    progress: Any = PROGRESS,
    cores: int = 1,
    dtype: DtypeName = "float32",
) -> tuple[dict, list[float]]:
    model = fresh_model()
    losses = train(model, batches, recipe, folder, progress, dtype, cores)
    return model.state_dict(), losses


def assert_same(one: tuple[dict, list[float]], other: tuple[dict, list[float]]) -> None:
    assert one[1] == other[1]
    for name, weight in one[0].items():
        assert torch.equal(weight, other[0][name]), name


@pytest.fixture
def uninterrupted(tmp_path: Path) -> tuple[dict, list[float]]:
    (tmp_path / "whole").mkdir()
    return trained(tmp_path / "whole")


@contextmanager
def stop_after(step: int, how: Callable[[], None], total: float) -> Iterator[Advance]:
    """Progress that calls `how` when so many steps are done."""
    calls = 0

    def advance(steps: float = 1, *, note: str = "", left: float | None = None) -> None:
        nonlocal calls
        calls += 1
        if calls == step:
            how()

    yield advance


def test_the_same_training_gives_the_same_weights(
    tmp_path: Path, uninterrupted: tuple[dict, list[float]]
) -> None:
    (tmp_path / "again").mkdir()
    assert_same(uninterrupted, trained(tmp_path / "again"))


@pytest.mark.parametrize("cores", [2, 3, 8])
def test_the_weights_are_the_same_bytes_on_any_number_of_cores(
    tmp_path: Path, uninterrupted: tuple[dict, list[float]], cores: int
) -> None:
    (tmp_path / "cores").mkdir()
    threads = set[str]()
    before = training.compute_batch_loss

    def noted(*arguments: Any) -> torch.Tensor:
        threads.add(threading.current_thread().name)
        return before(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "compute_batch_loss", noted)
        assert_same(uninterrupted, trained(tmp_path / "cores", cores=cores))
    assert len(threads) > 1


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_one_core_learns_the_same_in_a_cell_as_several(
    tmp_path: Path, dtype: DtypeName
) -> None:
    """A cell is computed inside an autocast, which one core shares, but no thread."""
    made = []
    for cores in (1, 2):
        folder = tmp_path / str(cores)
        folder.mkdir()
        with use_torch_defaults():
            made.append(trained(folder, cores=cores, dtype=dtype))
    (tmp_path / "outside").mkdir()
    outside = trained(tmp_path / "outside", dtype=dtype)
    one, several = made
    assert_same(one, several)
    assert_same(one, outside)
    losses = one[1]
    assert losses[-1] < losses[0] - 0.02


def test_gradients_of_the_parts_are_those_of_the_whole_batch() -> None:
    batch = batches(3, 32, 10)
    ours, theirs = fresh_model(), fresh_model()
    for model in (ours, theirs):
        with torch.no_grad():
            for index, weight in enumerate(model.parameters()):
                weight.normal_(std=0.2, generator=torch.Generator().manual_seed(index))
    loss = set_gradients(ours, batch, "float32", None)
    whole = training.compute_batch_loss(theirs, batch)
    whole.backward()
    assert loss == pytest.approx(whole.item(), rel=1e-6)
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, other.grad, rtol=1e-4, atol=1e-6)


def test_a_finished_run_is_loaded_and_not_repeated(
    tmp_path: Path, uninterrupted: tuple[dict, list[float]]
) -> None:
    def refuse() -> None:
        raise AssertionError("a step was made")

    again = trained(tmp_path / "whole", progress=partial(stop_after, 1, refuse))
    assert_same(uninterrupted, again)


def test_ctrl_c_keeps_the_step_and_the_run_continues_exactly(
    tmp_path: Path, uninterrupted: tuple[dict, list[float]]
) -> None:
    folder = tmp_path / "stopped"
    folder.mkdir()
    interrupt = partial(signal.raise_signal, signal.SIGINT)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        trained(folder, progress=partial(stop_after, 5, interrupt))
    assert signal.getsignal(signal.SIGINT) is before
    seen: list[float] = []

    @contextmanager
    def counting(total: float) -> Iterator[Advance]:
        yield lambda steps=1, *, note="", left=None: seen.append(steps)

    assert_same(uninterrupted, trained(folder, progress=counting))
    assert len(seen) == RECIPE.steps - 5


KILLED = """
import sys
import time
from functools import partial
from pathlib import Path
from ropelab.models.lm import training
from tests.models.lm.test_training import RECIPE, stop_after, trained
training.SECONDS_BETWEEN_CHECKPOINTS = 0.0
# It never ends the last step, however late it is killed.
sleep = partial(time.sleep, 600)
trained(Path(sys.argv[1]), progress=partial(stop_after, RECIPE.steps, sleep))
"""


@pytest.mark.processes
def test_kill_9_at_any_moment_and_the_run_continues_exactly(
    tmp_path: Path, uninterrupted: tuple[dict, list[float]]
) -> None:
    folder = tmp_path / "killed"
    folder.mkdir()
    with started("-c", KILLED, str(folder), cwd=Path.cwd()):
        wait_until((folder / CHECKPOINT).exists)
    # As from a process that is killed while it writes the file.
    with suppress(MachineError), replace_file(folder / CHECKPOINT) as half:
        raise MachineError
    half.write_bytes(b"half a checkpoint")
    assert_same(uninterrupted, trained(folder))
    assert not half.exists()


def test_divergence_is_an_error_with_step_and_loss() -> None:
    with pytest.raises(
        MachineError, match=r"step 3: loss nan, when knowing nothing gives 4\.159"
    ):
        check_finite([4.16, 4.1, math.nan], vocabulary=64)
    with pytest.raises(MachineError, match="diverged at step 2"):
        check_finite([4.0, 12.5], vocabulary=64)
    check_finite([4.0, 12.4], vocabulary=64)


def test_one_hard_sequence_is_no_divergence_of_a_model_that_is_trained_on() -> None:
    check_finite([0.18, 5.9], vocabulary=64)


def test_a_diverging_run_leaves_its_last_good_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    losses = iter([4.0, 3.0, math.inf])
    monkeypatch.setattr(training, "make_step", lambda *_, **__: next(losses))
    with pytest.raises(MachineError, match="diverged at step 3"):
        trained(tmp_path)
    assert training.load_checkpoint(tmp_path, fresh_model(), []) == [4.0, 3.0]


def test_a_full_disk_is_an_error_and_keeps_the_old_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = fresh_model()
    training.save_checkpoint(tmp_path, model, [], [1.0])

    def no_space(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(MachineError, match="No space left on device"):
        training.save_checkpoint(tmp_path, model, [], [1.0, 2.0])
    assert training.load_checkpoint(tmp_path, model, []) == [1.0]


def test_a_checkpoint_of_another_model_is_an_error_that_says_what_to_do(
    tmp_path: Path,
) -> None:
    training.save_checkpoint(tmp_path, torch.nn.Linear(2, 2), [], [1.0])
    with pytest.raises(MachineError, match="delete it to start over"):
        training.load_checkpoint(tmp_path, fresh_model(), [])


def test_a_checkpoint_of_another_folder_is_not_used_although_its_shapes_fit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine, other = tmp_path / "mine", tmp_path / "other"
    for folder, losses in ((mine, [1.0]), (other, [2.0, 3.0])):
        folder.mkdir()
        training.save_checkpoint(folder, fresh_model(), [], losses)
    assert training.load_checkpoint(mine, fresh_model(), []) == [1.0]
    shutil.copy(other / training.CHECKPOINT, mine / training.CHECKPOINT)
    assert training.load_checkpoint(mine, fresh_model(), []) == []
    assert "not what was written" in capsys.readouterr().err
    assert training.load_checkpoint(other, fresh_model(), []) == [2.0, 3.0]


def test_a_checkpoint_of_an_earlier_version_is_used(tmp_path: Path) -> None:
    training.save_checkpoint(tmp_path, fresh_model(), [], [1.0])
    path = tmp_path / training.CHECKPOINT
    tensors = load_file(path)
    del tensors["cell"], tensors[training.HASH]
    path.write_bytes(save({**tensors, training.HASH: training.hash_tensors(tensors)}))
    assert training.load_checkpoint(tmp_path, fresh_model(), []) == [1.0]


def flip(path: Path, places: range) -> None:
    content = bytearray(path.read_bytes())
    for place in places:
        content[place % len(content)] ^= 1
    path.write_bytes(content)


DAMAGE = {
    "a bit of the weights": lambda path: flip(path, range(-40, -39)),
    "200 bits": lambda path: flip(path, range(0, 200 * 97, 97)),
    "a letter of the header": lambda path: flip(path, range(30, 31)),
    "a cut": lambda path: path.write_bytes(path.read_bytes()[:-100]),
    "empty": lambda path: path.write_bytes(b""),
    "no checkpoint": lambda path: path.write_bytes(b"not a checkpoint"),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_checkpoint_is_said_and_training_begins_again(
    tmp_path: Path,
    uninterrupted: tuple[dict, list[float]],
    capsys: pytest.CaptureFixture[str],
    damage: str,
) -> None:
    DAMAGE[damage](tmp_path / "whole" / CHECKPOINT)
    assert_same(uninterrupted, trained(tmp_path / "whole"))
    (line,) = capsys.readouterr().err.splitlines()
    assert mentions(line, "not what was written", "training begins again")
    assert_same(uninterrupted, trained(tmp_path / "whole"))
    assert capsys.readouterr().err == ""


def test_the_window_doubles_over_the_first_half() -> None:
    recipe = Recipe(steps=100, window=2048)
    windows = [recipe.window_at(step) for step in range(100)]
    assert sorted(set(windows)) == [64, 128, 256, 512, 1024, 2048]
    assert windows == sorted(windows)
    assert windows.index(2048) == 50
    assert {Recipe(steps=9, window=64).window_at(step) for step in range(9)} == {64}
    odd = Recipe(steps=100, window=100)
    assert [odd.window_at(step) for step in (0, 49, 50, 99)] == [64, 64, 100, 100]


def test_the_learning_rate_rises_and_falls() -> None:
    recipe = Recipe(steps=100, window=64, warmup=10)
    rates = [recipe.rate_at(step) for step in range(101)]
    assert rates[0] == pytest.approx(0.1)
    assert max(rates) == pytest.approx(1.0)
    assert rates[100] == pytest.approx(training.FINAL_RATE)
    assert all(a >= b for a, b in pairwise(rates[10:]))


@pytest.mark.slow
def test_training_learns_one_batch_by_heart(tmp_path: Path) -> None:
    recipe = Recipe(steps=250, window=16, tokens_per_step=64, warmup=5, first_window=16)
    batch = batches(step=0, window=16, rows=4)
    losses = train(fresh_model(), lambda *_: batch, recipe, tmp_path, PROGRESS)
    assert losses[0] == pytest.approx(math.log(128), abs=1e-5)
    assert losses[-1] < 1.0


class OfOnesOwn(Encoding):
    """Keeps what it was given from one call to the next, and draws."""

    fused = False

    def query(self, q: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        self.given = q
        time.sleep(1e-4)  # another thread may come in between
        return q * (1 + torch.rand(1))

    def scores(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        q_positions: torch.Tensor,
        k_positions: torch.Tensor,
    ) -> torch.Tensor:
        return super().scores(q + self.given, k, q_positions, k_positions)


def test_an_encoding_of_ones_own_may_keep_things_and_draw(tmp_path: Path) -> None:
    found = []
    for cores in (1, 4):
        torch.manual_seed(cores)  # whatever was drawn before
        model = fresh_model()
        model.encoding = OfOnesOwn()
        (folder := tmp_path / str(cores)).mkdir()
        found.append(
            (model, train(model, batches, RECIPE, folder, PROGRESS, cores=cores))
        )
    (one, losses), (other, of_other) = found
    assert_same((one.state_dict(), losses), (other.state_dict(), of_other))


@pytest.mark.parametrize("used_in", [{1}, {2, 4}])
def test_a_parameter_used_in_some_parts_only_has_the_gradient_of_those(
    used_in: set[int],
) -> None:
    class Seldom(Encoding):
        def __init__(self) -> None:
            super().__init__()
            self.calls, self.scale = 0, torch.nn.Parameter(torch.ones(1))

        def query(self, q: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            return q * self.scale if self.calls in used_in else q

    model = fresh_model()
    model.encoding = encoding = Seldom()
    for weight in model.parameters():
        torch.nn.init.normal_(weight)
    set_gradients(model, batches(0, 32, 4), "float32", None)
    assert encoding.scale.grad is not None and float(encoding.scale.grad) != 0


def test_another_thread_never_sees_half_of_a_longer_table() -> None:
    class Interrupted(Rope):
        """Rotates whenever an attribute was set, as another thread may."""

        def __setattr__(self, name: str, value: Any) -> None:
            super().__setattr__(name, value)
            if "ready" in vars(self) and name != "ready":
                self.rotate_heads(torch.ones(1, 1, 64, 8), torch.arange(64))

    rope = Interrupted(RopePlan(Geometry(8, 1e4, 32).inv_freq))
    rope.ready = True
    rotated = rope.rotate_heads(torch.ones(1, 1, 64, 8), torch.arange(64))
    plain = Rope(RopePlan(Geometry(8, 1e4, 32).inv_freq))
    expected = plain.rotate_heads(torch.ones(1, 1, 64, 8), torch.arange(64))
    torch.testing.assert_close(rotated, expected, rtol=0, atol=0)


def test_operations_of_a_token_are_counted_as_by_torch() -> None:
    """Against torch's own counter, which counts all of a square of scores, causal or
    not, where half of it is counted here.
    """
    size = ModelSize(vocabulary=256, layers=2, width=32, heads=2, head_dim=16)
    window = 64
    encoding = Rope(RopePlan(Geometry(16, 1e4, window).inv_freq))
    model = LanguageModel(size, encoding, seed=0)
    counter = FlopCounterMode(display=False)
    # The counter does not know the fused kernel of a processor.
    with counter, sdpa_kernel(SDPBackend.MATH):
        logits = model(torch.zeros(1, window, dtype=torch.long))
        logits.sum().backward()

    # Queries with keys, and scores with values: 2 operations each, in three passes.
    features = size.layers * size.heads * size.head_dim
    half_of_scores = 3 * 2 * features * window * window
    per_token = (counter.get_total_flops() - half_of_scores) / window
    assert count_operations_per_token(size, window) == pytest.approx(
        per_token, rel=0.02
    )
