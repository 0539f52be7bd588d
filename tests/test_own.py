"""Methods, encodings, tasks and cast plans from outside; docs/own.md is executed."""

import importlib
import json
import os
import pickle
import py_compile
import re
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path
from textwrap import dedent, indent
from typing import Any

import numpy as np
import pytest

import ropelab
from ropelab.cli import outcome
from ropelab.cli.app import main
from ropelab.conformance.laws.model import ask_for_subject
from ropelab.conformance.user_code import load_factory
from ropelab.experiments.encodings import EncodingsConfig, quality
from ropelab.experiments.encodings.cost import Timing
from ropelab.lab import Lab
from ropelab.math.frequencies import Geometry
from ropelab.models.lm.trained import Training
from ropelab.models.tasks.plans import make_task_beyond_training
from ropelab.models.tasks.retrieval import Retrieval
from ropelab.runs import from_source, own
from ropelab.runs.cell import (
    Cells,
    Computation,
    Context,
    hash_cell,
    list_with_prerequisites,
)
from ropelab.runs.config import build
from ropelab.runs.engine import on_ray
from ropelab.runs.engine.local import Workers
from ropelab.runs.errors import InputError, MachineError
from tests.models.released.tiny import reader_of_bytes
from tests.texts import mentions

PAGE = (Path(__file__).parents[1] / "docs/own.md").read_text()
MODULE = re.findall(r"```python\n(.+?)```", PAGE, re.DOTALL)[0]
MORE = """
from ropelab.math.numerics.casts import parse_cast
from ropelab.models.encoding.base import Encoding
from ropelab.models.tasks.retrieval import copy_trials

class MyEncoding(Encoding):
    def __init__(self, trained_len):
        super().__init__()
        self.trained_len = trained_len

    def query(self, q, positions):
        return q * 2.0

def my_task(seed, distances, context, rows, background):
    return copy_trials(seed, distances, context, rows, background)

MY_PLAN = parse_cast("table=bfloat16")
SLOW = 6.283
"""
SMALL = {
    "train_len": 64,
    "test_len": 128,
    "documents": 2,
    "sequences": 2,
    "device": "cpu",
    "dtype": "float32",
}


@pytest.fixture
def mymodule(tmp_path, monkeypatch):
    """The module of docs/own.md in the working folder; returns a way to change it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    finder = from_source._Finder()
    before = [each for each in sys.meta_path if each is not from_source._finder]
    monkeypatch.setattr(from_source, "_finder", finder)
    monkeypatch.setattr(sys, "meta_path", before)

    def written(text: str) -> None:
        Path("mymodule.py").write_text(text)
        sys.modules.pop("mymodule", None)
        for key in [key for key in own._objects if key[1].startswith("mymodule")]:
            del own._objects[key]

    written(MODULE + MORE)
    yield written
    written("")


def typed(capsys, *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    return (ended.value.code, *capsys.readouterr())


def keys(experiment: str, **values: object) -> set[str]:
    """The names of all cells of a run."""
    lab = Lab()
    plan = lab.prepare(experiment, values)
    return set(lab.find_work(plan, Context()).cells)


def test_the_example_has_12_lines(mymodule) -> None:
    lines = [
        line
        for line in MODULE.splitlines()
        if line.strip() and not line.startswith("#")
    ]
    assert len(lines) <= 12


def test_the_example_does_what_it_says(mymodule, capsys) -> None:
    status, out, _ = typed(
        capsys,
        "freqs",
        "--method",
        "mymodule:MyRoPE(factor=4)",
        "--train-len",
        "4096",
        "--json",
    )
    assert status == 0
    rows = json.loads(out)["tables"]["pairs"]
    divided = np.array([row["divided_by"] for row in rows])
    slow = np.array([row["wavelength_tokens"] > 4096 for row in rows])
    assert 0 < slow.sum() < len(rows)
    np.testing.assert_allclose(divided, np.where(slow, 4.0, 1.0))


def test_a_changed_class_is_another_cell_and_another_run(mymodule, capsys) -> None:
    text = "mymodule:MyRoPE(factor=4)"
    before = keys("freqs", method=text)
    first = ropelab.freqs(method=text, results="kept")
    assert ropelab.freqs(method=text, results="kept").reused
    mymodule(MODULE.replace("6.283", "3.14"))
    assert keys("freqs", method=text).isdisjoint(before)
    second = ropelab.freqs(method=text, results="kept")
    assert not second.reused
    assert not second.tables["pairs"].equals(first.tables["pairs"])


def test_precision_under_a_changed_class_is_computed_anew(mymodule) -> None:
    values = {"method": "mymodule:MyRoPE(factor=4)", "length": 256, "long_lengths": 512}
    before = keys("precision", **values)
    mymodule(MODULE.replace("6.283", "3.14"))
    # One frequency alone has no method.
    assert len(before & keys("precision", **values)) == 1


def test_times_of_a_changed_encoding_are_measured_anew(mymodule, corpus) -> None:
    values = {**SMALL, "corpus": corpus, "encodings": "mymodule:MyEncoding"}
    before = hash_cell(Timing(build(EncodingsConfig, values)))
    mymodule(MODULE + MORE.replace("q * 2.0", "q * 3.0"))
    assert hash_cell(Timing(build(EncodingsConfig, values))) != before


RECALIBRATED = """
from dataclasses import dataclass
from ropelab.models.encoding.extended import Dropped
from ropelab.models.methods.method import FixedMethod

@dataclass(frozen=True, kw_only=True)
class Sharper(FixedMethod):
    alpha: float = 1.0
    recalibration = 3

    def encoding(self, geometry, length):
        return Dropped(self.alpha)
"""


def test_a_method_that_trains_on_is_trained_for_each_of_its_parameters(
    mymodule, corpus
) -> None:
    mymodule(RECALIBRATED)
    values = {**SMALL, "corpus": corpus, "preset": "tiny", "tasks": "text"}
    found = [
        keys("extrapolate", **values, methods=f"mymodule:Sharper(alpha={alpha})")
        for alpha in (0.5, 8.0)
    ]
    # Besides what is measured: the training.
    assert len(found[0] - found[1]) == len(found[1] - found[0]) >= 2


def test_two_tasks_of_ones_own_with_one_name_are_refused(
    mymodule, capsys, tmp_path
) -> None:
    mymodule(MODULE + MORE)
    Path("mymodule2.py").write_text(MODULE + MORE)
    tasks = "mymodule:my_task,mymodule2:my_task"
    status, out, err = typed(capsys, "extrapolate", "--tasks", tasks)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert mentions(err, "two tasks", "my_task")


def test_evaluations_of_a_changed_method_are_other_cells_and_those_of_yarn_the_same(
    mymodule, corpus
) -> None:
    values = {
        **SMALL,
        "corpus": corpus,
        "tasks": "copy",
        "methods": "mymodule:MyRoPE,yarn",
    }
    before = keys("extrapolate", **values)
    mymodule(MODULE.replace("6.283", "3.14"))
    after = keys("extrapolate", **values)
    assert len(before - after) == len(after - before) == 1


def test_a_trained_encoding_is_trained_anew_when_its_file_changes(
    mymodule, corpus
) -> None:
    inside = "layers(window(mymodule:MyEncoding,16),rope)"
    names = f"mymodule:MyEncoding,rope,{inside}"
    values = {**SMALL, "corpus": corpus, "tasks": "copy", "encodings": names}

    def models() -> dict[str, str]:
        plan = Lab().prepare("encodings", values)
        cells = list_with_prerequisites(plan.experiment.cells(plan.config)).values()
        return {
            cell.called: hash_cell(cell) for cell in cells if isinstance(cell, Training)
        }

    before = models()
    mymodule(MODULE + MORE.replace("q * 2.0", "q * 3.0"))
    after = models()
    assert before["rope"] == after["rope"]
    assert before["mymodule:MyEncoding"] != after["mymodule:MyEncoding"]
    assert before[inside] != after[inside]


def test_everything_of_ones_own_is_compared_in_one_run(
    mymodule, corpus, tiny_preset
) -> None:
    run = ropelab.extrapolate(
        **SMALL, corpus=corpus, methods="mymodule:MyRoPE,pi", tasks="mymodule:my_task"
    )
    shown = set(run.tables["my_task_accuracy"]["method"])
    assert {"mymodule:MyRoPE", "pi"} <= shown
    assert "solves my_task" in run.answer
    assert run.figures()


def test_an_encoding_of_ones_own_is_in_every_table(mymodule, corpus) -> None:
    run = ropelab.encodings(
        **SMALL, corpus=corpus, encodings="mymodule:MyEncoding,rope", tasks="copy", steps=2,
        layers=1, width=16, heads=1, head_dim=16, tokens_per_step=128,
    )  # fmt: skip
    cost = run.tables["cost"].set_index("encoding")
    assert cost.loc["mymodule:MyEncoding", "label"] == "MyEncoding"
    assert cost.loc["mymodule:MyEncoding", "family"] == "rotation"
    assert run.figures()


def test_a_cast_plan_of_ones_own_is_a_preset(mymodule) -> None:
    small = {"length": 256, "long_lengths": [], "draws": 2, "samples": 4}
    mine = ropelab.precision(preset="mymodule:MY_PLAN", **small).tables["casts"]
    same = ropelab.precision(cast="table=bfloat16", **small).tables["casts"]
    assert (mine["name"] == "mymodule:MY_PLAN").any()
    assert mine["max_table_error"].tolist() == same["max_table_error"].tolist()
    assert mine["max_table_error"].max() > 0


def test_a_model_trained_under_a_plan_of_ones_own_is_named_by_what_the_plan_says(
    corpus, monkeypatch
) -> None:
    from ropelab.math.numerics import casts

    def key(text: str) -> dict[str, Any]:
        plans = {("casts", "mine"): casts.parse_cast(text)}
        for module in (casts, quality):
            monkeypatch.setattr(module, "find_own", lambda *asked: plans.get(asked))
        encodings = "rounded(rope, mine)"
        config = build(
            EncodingsConfig, {**SMALL, "corpus": str(corpus), "encodings": encodings}
        )
        return quality.make_training(config, config.encodings[0], 0).key

    assert key("table=bfloat16") == key("table=bfloat16") != key("table=float16")


def test_a_cast_plan_has_formats_that_its_name_says(mymodule, monkeypatch) -> None:
    from ropelab.math.numerics import casts
    from ropelab.math.numerics.formats import FloatFormat

    mine = FloatFormat(name="bfloat16", precision=3, exponent_bits=8)
    monkeypatch.setattr(
        casts, "find_own", lambda kind, name: casts.CastPlan(table=mine)
    )
    with pytest.raises(InputError, match="those of ropelab"):
        casts.find_preset("mymodule:MY_PLAN")


def test_from_python_an_object_is_what_would_be_typed(mymodule, monkeypatch) -> None:
    monkeypatch.syspath_prepend(Path.cwd())
    import mymodule as mine  # type: ignore[import-not-found]

    run = ropelab.freqs(method=mine.MyRoPE(factor=4))
    assert run.config.method == "mymodule:MyRoPE(factor=4)"
    config = (
        Lab().prepare("extrapolate", {**SMALL, "methods": [mine.MyRoPE, "yarn"]}).config
    )
    assert config.methods == ("mymodule:MyRoPE", "yarn")  # type: ignore[attr-defined]


def test_a_module_of_an_earlier_working_folder_is_not_taken(
    mymodule, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(own, "_given", set())
    first = ropelab.freqs(method="mymodule:MyRoPE(factor=4)")
    other = tmp_path / "other"
    other.mkdir()
    monkeypatch.chdir(other)
    # Without a file of that name the loaded module is the only one.
    assert ropelab.freqs(method="mymodule:MyRoPE(factor=4)").answer == first.answer

    Path("mymodule.py").write_text(MODULE.replace("6.283", "1"))
    for ask in (
        lambda: ropelab.freqs(method="mymodule:MyRoPE(factor=4)"),
        lambda: ropelab.freqs(method="mymodule:MyRoPE"),
        lambda: load_factory("mymodule", "MyRoPE"),
        lambda: ask_for_subject("mymodule:MyRoPE"),
    ):
        with pytest.raises(InputError, match="the working folder has another"):
            ask()

    # An object says itself which one is meant.
    mine = sys.modules["mymodule"].MyRoPE(factor=4)
    assert ropelab.freqs(method=mine).answer == first.answer


def test_a_class_inside_a_function_is_refused() -> None:
    from ropelab.math.scaling import Scaling

    class Inside(Scaling):
        """Nowhere to be imported from."""

    with pytest.raises(InputError, match="define it at the top level"):
        ropelab.freqs(method=Inside)


MADE = """
from dataclasses import dataclass
from functools import partial

from ropelab.math.scaling import RopePlan, Scaling
from ropelab.models.tasks.retrieval import copy_trials


def method(times):
    @dataclass(frozen=True, kw_only=True)
    class Made(Scaling):
        def plan(self, geometry, length):
            return RopePlan(geometry.inv_freq / times)

    Made.__qualname__ = "Made"
    return Made


@dataclass(frozen=True)
class Called:
    rows: int = 1

    def __call__(self, *given):
        return copy_trials(*given)


Two, Five = method(2), method(5)
called, bound = Called(), partial(copy_trials)
"""


@pytest.mark.parametrize(
    ("command", "flag", "name"),
    [
        ("freqs", "--method", "Two"),
        ("extrapolate", "--methods", "pi,mymodule:Five"),
        ("extrapolate", "--tasks", "called"),
        ("extrapolate", "--tasks", "bound"),
    ],
)
def test_what_other_code_has_made_is_refused(
    mymodule, capsys, command, flag, name
) -> None:
    # Its own name leads elsewhere or to another one, so that a change is not seen and
    # two are one.
    mymodule(MADE)
    name = name if "," in name else f"mymodule:{name}"
    status, out, err = typed(capsys, command, flag, name)
    assert (status, out) == (2, "")
    assert mentions(err, "at the top level")
    assert name.rpartition(",")[2] in err


def test_two_classes_of_one_name_are_not_taken_for_one(mymodule, monkeypatch) -> None:
    mymodule(MADE)
    monkeypatch.syspath_prepend(Path.cwd())
    import mymodule as mine

    with pytest.raises(InputError, match="mymodule:Made: define it at the top level"):
        ropelab.freqs(method=mine.Two())


def test_a_file_that_was_changed_after_its_import_is_refused(
    mymodule, monkeypatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.syspath_prepend(Path.cwd())
    importlib.invalidate_caches()
    import mymodule as mine

    Path("mymodule.py").write_text(MODULE.replace("6.283", "3.1"))
    # Its first use: the old code would be kept under the new file's name.
    with pytest.raises(
        InputError, match=r"mymodule\.py has changed since it was imported"
    ):
        ropelab.freqs(method=mine.MyRoPE(factor=4))
    mine = importlib.reload(mine)
    assert (
        ropelab.freqs(method=mine.MyRoPE(factor=4)).tables["pairs"]["divided_by"].max()
        == 4
    )


def leave_stale_copy(file: str, old: str, new: str) -> None:
    """Write two texts of one size and one time; Python's compiled copy is of the
    first.
    """
    assert len(old) == len(new)
    path = Path(file)
    path.write_text(old)
    py_compile.compile(file)
    state = path.stat()
    path.write_text(new)
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))


def largest_divisor(method: object) -> float:
    table = ropelab.freqs(method=method).tables["pairs"]
    return float(table["divided_by"].max())


HALVED = MODULE.replace("(self.factor - 1)", "(self.factor / 2)")


def test_a_stale_compiled_copy_is_not_what_runs(mymodule, monkeypatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    leave_stale_copy("mymodule.py", MODULE, HALVED)
    importlib.invalidate_caches()
    # 1 + 4 / 2 by the new text, 1 + 4 - 1 by the old one.
    assert largest_divisor("mymodule:MyRoPE(factor=4)") == 3
    right = own.fingerprint_source(own.find_own("methods", "mymodule:MyRoPE"))
    mymodule(HALVED)
    assert own.fingerprint_source(own.find_own("methods", "mymodule:MyRoPE")) == right


def test_neither_is_one_of_what_it_imports_from_its_folder(
    mymodule, monkeypatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    divided = "1 + slow * (self.factor - 1)"
    mymodule(
        "import helpers.shares\n"
        + MODULE.replace(divided, "helpers.shares.of(self, slow)")
    )
    Path("helpers").mkdir()
    helper = f"def of(self, slow):\n    return {divided}\n"
    leave_stale_copy("helpers/shares.py", helper, helper.replace("- 1)", "/ 2)"))
    importlib.invalidate_caches()
    assert largest_divisor("mymodule:MyRoPE(factor=4)") == 3
    for name in ("helpers", "helpers.shares"):
        del sys.modules[name]


def test_a_stale_copy_that_python_itself_has_run_is_refused(
    mymodule, monkeypatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.syspath_prepend(Path.cwd())
    leave_stale_copy("mymodule.py", MODULE, HALVED)
    importlib.invalidate_caches()
    import mymodule as mine

    with pytest.raises(InputError, match="has changed since it was imported"):
        ropelab.freqs(method=mine.MyRoPE(factor=4))


def test_so_is_a_changed_file_where_python_writes_no_copies(
    mymodule, monkeypatch
) -> None:
    monkeypatch.syspath_prepend(Path.cwd())
    importlib.invalidate_caches()
    import mymodule as mine

    assert largest_divisor(mine.MyRoPE(factor=4)) == 4
    Path("mymodule.py").write_text(MODULE.replace("6.283", "3.1"))
    vars(own)["_fingerprints"].pop(mine.MyRoPE)
    with pytest.raises(InputError, match="has changed since it was imported"):
        ropelab.freqs(method=mine.MyRoPE(factor=4))


def test_libraries_are_not_taken_from_the_working_folder(mymodule) -> None:
    Path("colorsys.py").write_text("1 / 0\n")
    assert largest_divisor("mymodule:MyRoPE(factor=4)") == 4
    importlib.invalidate_caches()
    sys.modules.pop("colorsys", None)
    assert importlib.import_module("colorsys").rgb_to_hsv(0, 0, 0) == (0, 0, 0)


def test_a_file_in_another_encoding_is_identified_too(mymodule) -> None:
    text = MODULE.replace("Divide slow", "Divide (\xe9) slow")
    Path("mymodule.py").write_bytes(
        f"# -*- coding: latin-1 -*-\n{text}".encode("latin-1")
    )
    assert largest_divisor("mymodule:MyRoPE(factor=4)") == 4


TEXT = """
@dataclass(frozen=True, kw_only=True)
class Spelled(Scaling):
    letter: str = "a"

    def plan(self, geometry, length):
        return RopePlan(geometry.inv_freq / (2 if self.letter == "A" else 1))
"""


def test_text_of_a_parameter_keeps_its_capitals_and_is_one_parameter(
    mymodule, monkeypatch
) -> None:
    mymodule(MODULE + TEXT)
    monkeypatch.syspath_prepend(Path.cwd())
    import mymodule as mine

    divided = [
        ropelab.freqs(method=mine.Spelled(letter=letter)).tables["pairs"]["divided_by"][
            0
        ]
        for letter in "aA"
    ]
    assert divided == [1, 2]
    for text in ("a, factor=4", " a", ""):
        with pytest.raises(InputError, match="cannot be a parameter"):
            ropelab.freqs(method=mine.Spelled(letter=text))


def test_a_file_in_the_place_of_its_module_is_told_its_module(capsys, tmp_path) -> None:
    config = {"model_type": "llama", "hidden_size": 512, "num_attention_heads": 8}
    (tmp_path / "config.json").write_text(json.dumps(config))
    for command in (
        ("freqs", "--method", "mine.py:Smooth"),
        ("check", "mine.py:Smooth", "--config", str(tmp_path / "config.json")),
    ):
        status, out, err = typed(capsys, *command)
        assert (status, out, err.count("\n")) == (2, "", 1)
        assert mentions(err, "mine.py is a file", "mine:Name")


def test_a_module_that_was_reloaded_is_another_one(mymodule, monkeypatch) -> None:
    monkeypatch.syspath_prepend(Path.cwd())
    name = "mymodule:MyRoPE"
    first = ropelab.freqs(method=f"{name}(factor=4)", results="kept")
    before = own.fingerprint_source(own.find_own("methods", name))
    Path("mymodule.py").write_text(MODULE.replace("6.283", "3.14"))
    # What is imported has not changed.
    assert ropelab.freqs(method=f"{name}(factor=4)", results="kept").reused
    importlib.reload(sys.modules["mymodule"])
    second = ropelab.freqs(method=f"{name}(factor=4)", results="kept")
    assert not second.reused
    assert not second.tables["pairs"].equals(first.tables["pairs"])
    # As IPython's autoreload does: the same object, with other code.
    kept: Any = own.find_own("methods", name)
    found = own.fingerprint_source(kept)
    Path("mymodule.py").write_text(MODULE + MORE)
    importlib.reload(sys.modules["mymodule"])
    vars(sys.modules["mymodule"])["MyRoPE"] = kept
    assert own.find_own("methods", name) is kept
    assert own.fingerprint_source(kept) == before != found


EMPTY = Computation(kind="empty", version=1, title="nothing", function=dict, inputs={})


@pytest.mark.processes
def test_a_worker_refuses_a_module_that_changed_since_the_run_began(
    mymodule, tmp_path
) -> None:
    own.find_own("methods", "mymodule:MyRoPE")
    own.fingerprint_source(own.find_own("methods", "mymodule:MyRoPE"))
    Path("mymodule.py").write_text(MODULE.replace("6.283", "3.14"))
    engine = Workers(1)
    try:
        context = Context(cells=Cells(tmp_path / "cells"))
        ((_, error),) = engine.compute([EMPTY], context)
    finally:
        engine.stop()
    assert isinstance(error, MachineError)
    assert mentions(str(error), "mymodule:MyRoPE", "has changed")


def plan_of_user() -> dict[str, Any]:
    method: Any = own.find_own("methods", "mymodule:MyRoPE")
    method(factor=4).plan(Geometry(8, 1e4, 64), 128)
    return {}


PLANS = replace(EMPTY, kind="plans", function=plan_of_user)


@pytest.mark.processes
@pytest.mark.parametrize("end", ["os._exit(0)", "sys.exit(0)"])
def test_code_that_ends_a_worker_is_an_error_in_it(
    mymodule, tmp_path, end: str
) -> None:
    text = MODULE.replace("        slow = ", f"        {end}\n        slow = ")
    mymodule(f"import os, sys\n{text}")
    own.find_own("methods", "mymodule:MyRoPE")

    def compute() -> None:
        engine = Workers(1)
        try:
            ((_, error),) = engine.compute([PLANS], Context(cells=Cells(tmp_path)))
            assert error is not None
            raise error
        finally:
            engine.stop()

    assert outcome.run_for_status(compute) == 2


def test_so_does_a_worker_on_ray(mymodule) -> None:
    known = on_ray.VERSION, {"mymodule:MyRoPE": "another"}, list[str]()
    with pytest.raises(MachineError, match="has changed since this run began"):
        on_ray.compute_on_worker(known, 0, pickle.dumps(EMPTY), "", "", None)


def test_a_task_of_ones_own_is_asked_of_a_released_model(
    mymodule, corpus, tmp_path
) -> None:
    model = reader_of_bytes(tmp_path / "model")
    asked = ropelab.evaluate(
        model=model, corpus=corpus, tasks="mymodule:my_task", methods="pi", context=128,
        sequences=2, device="cpu",
    )  # fmt: skip
    assert asked.tables["recommendation"]["task"].tolist() == ["my_task"]
    assert asked.tables["my_task_accuracy"]["status"].tolist() == ["undecidable"]


@pytest.mark.parametrize(
    "wrong",
    [
        "copy_trials(seed, distances, 2 * context, rows, background)",
        "copy_trials(seed, distances, context, 1, background)",
        (
            "Trials((made := copy_trials(seed, distances, context, rows)).tokens - 40,"
            " made.distances)"
        ),
    ],
)
def test_rows_or_symbols_that_were_not_asked_for_are_refused(
    mymodule, corpus, wrong: str
) -> None:
    # Longer rows would be taken for the context asked for, other symbols for the
    # nearest ones.
    right = "copy_trials(seed, distances, context, rows, background)"
    assert right in MORE
    start = "from ropelab.models.tasks.retrieval import Trials\n"
    mymodule(MODULE + start + MORE.replace(right, wrong))
    values = {**SMALL, "corpus": corpus, "tasks": "mymodule:my_task"}
    config: Any = Lab().prepare("extrapolate", values).config
    task = make_task_beyond_training(config, "mymodule:my_task")
    assert isinstance(task, Retrieval)
    with pytest.raises(
        InputError, match="mymodule:my_task must return 2 rows of 64 symbols"
    ):
        task.trials(0, 64, 2)


def test_code_that_ends_the_process_is_an_error_in_it(mymodule, capsys) -> None:
    mymodule(MODULE.replace("slow = ", "raise SystemExit(0)\n        slow = "))
    status, out, err = typed(capsys, "freqs", "--method", "mymodule:MyRoPE(factor=4)")
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert "SystemExit" in err


def test_entry_points_are_names_without_a_module(mymodule, monkeypatch, capsys) -> None:
    point = EntryPoint("my_rope", "mymodule:MyRoPE", "ropelab.methods")
    monkeypatch.setattr(
        own,
        "list_entry_points",
        lambda kind: {"my_rope": point} if kind == "methods" else {},
    )
    monkeypatch.setattr(own, "_objects", {})
    from ropelab.models.methods import registry

    monkeypatch.setattr(registry, "list_entry_points", own.list_entry_points)
    tables = [ropelab.freqs(method=f"{name}(factor=4)").tables["pairs"]
              for name in ("my_rope", "mymodule:MyRoPE")]  # fmt: skip
    assert tables[0].equals(tables[1])
    assert "mymodule:MyRoPE" in set(ropelab.methods()["source"])
    assert keys("freqs", method="my_rope(factor=4)")


def test_a_name_means_one_thing_of_each_kind(mymodule, monkeypatch) -> None:
    points = {
        "methods": {"mine": EntryPoint("mine", "mymodule:MyRoPE", "ropelab.methods")},
        "encodings": {
            "mine": EntryPoint("mine", "othermodule:MyEncoding", "ropelab.encodings")
        },
    }
    Path("othermodule.py").write_text(MORE.replace("2.0", "3.0"))
    monkeypatch.setattr(own, "list_entry_points", lambda kind: points.get(kind, {}))
    monkeypatch.setattr(own, "_objects", {})
    kinds: tuple[own.Kind, own.Kind] = ("methods", "encodings")
    found = [
        getattr(own.find_own(kind, "mine"), "__name__", "") for kind in (*kinds, *kinds)
    ]
    assert found == ["MyRoPE", "MyEncoding"] * 2
    # Both are in the key, since a text tells no kind.
    (both,) = own.find_sources(["mine"]).values()
    assert all(
        own.fingerprint_source(own.find_own(kind, "mine")) in both for kind in kinds
    )
    sys.modules.pop("othermodule")


def test_an_error_in_an_entry_point_has_its_place(
    mymodule, monkeypatch, capsys
) -> None:
    mymodule(MODULE.replace("slow = ", "1 / 0\n        slow = "))
    point = EntryPoint("mine", "mymodule:MyRoPE", "ropelab.methods")
    monkeypatch.setattr(
        own,
        "list_entry_points",
        lambda kind: {"mine": point} if kind == "methods" else {},
    )
    monkeypatch.setattr(own, "_objects", {})
    status, _, err = typed(capsys, "freqs", "--method", "mine(factor=4)")
    assert status == 2
    assert "mymodule.py, line " in err


@pytest.mark.parametrize(
    ("method", "says"),
    [
        ("mymodule:Nothing", "has no attribute 'Nothing'"),
        ("nomodule:MyRoPE", "No module named 'nomodule'"),
        ("mymodule:my_task", "must be a class below Scaling"),
        ("mymodule:SLOW", "mymodule:SLOW: define it at the top level"),
        ("mymodule:MyRoPE(fctor=4)", "did you mean 'factor'?"),
    ],
)
def test_what_cannot_be_used_is_one_line(
    mymodule, capsys, method: str, says: str
) -> None:
    status, out, err = typed(capsys, "freqs", "--method", method)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert says in err


def test_a_number_is_no_cast_plan(mymodule, capsys) -> None:
    status, out, err = typed(
        capsys, "precision", "--length", "64", "--preset", "mymodule:SLOW"
    )
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert "mymodule:SLOW" in err


@pytest.mark.parametrize(
    "command", ["freqs", "precision --length 64", "base --base 1e4"]
)
@pytest.mark.parametrize(
    "plan",
    [
        "geometry.inv_freq * float('nan')",
        "geometry.inv_freq * float('inf')",
        "-geometry.inv_freq",
        "geometry.inv_freq * 1j",
        "geometry.inv_freq[:1]",
        "0.5",
        "geometry.inv_freq, float('nan')",
        "geometry.inv_freq, -1.0",
        "geometry.inv_freq, 1.0, 0.0",
        "geometry.inv_freq, '2'",
        "geometry.inv_freq, True",
        "geometry.inv_freq.astype(object)",
        "geometry.inv_freq.astype(str)",
    ],
)
def test_a_plan_of_no_frequencies_is_refused(
    mymodule, capsys, command: str, plan: str
) -> None:
    mymodule(re.sub(r"RopePlan\(.*\)\n", f"RopePlan({plan})\n", MODULE))
    status, out, err = typed(
        capsys, *command.split(), "--method", "mymodule:MyRoPE(factor=4)"
    )
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert "plan() must return" in err


STRETCHED = """
from ropelab.math.scaling.plan import RopePlan, Stretching, method

@method("stretched", "here")
class Stretched(Stretching):
    def plan_stretch(self, geometry, stretch):
        return RopePlan(-geometry.inv_freq)
"""


def test_a_class_that_only_stretches_is_checked_too(mymodule, capsys) -> None:
    mymodule(STRETCHED)
    status, out, err = typed(
        capsys, "freqs", "--method", "mymodule:Stretched(factor=4)"
    )
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert mentions(err, "plan()", "frequencies")


@pytest.mark.parametrize(
    "command", ["freqs --method", "extrapolate --tasks copy --methods"]
)
def test_an_error_in_ones_own_code_is_its_line(mymodule, capsys, command: str) -> None:
    mymodule(MODULE.replace("geometry.trained_len < 6.283", "geometry.nothing < 6.283"))
    status, _, err = typed(capsys, *command.split(), "mymodule:MyRoPE(factor=4)")
    assert (status, err.count("\n")) == (2, 1)
    assert re.search(r"mymodule\.py, line 1\d:", err)
    assert mentions(err, "AttributeError:", "'nothing'")


@pytest.mark.parametrize(
    ("command", "reference"),
    [
        ("freqs --method", "ropelab.math.scaling:Scaling"),
        ("extrapolate --methods", "ropelab.math.scaling:Scaling"),
        ("extrapolate --methods", "ropelab.models.methods.method:Method"),
        ("extrapolate --methods", "ropelab.models.methods.method:Scaled"),
        ("encodings --encodings", "ropelab.models.encoding.base:Encoding"),
        ("freqs --method", "mymodule:Empty"),
        ("freqs --method", "mymodule:Different"),
    ],
)
def test_a_class_that_is_no_method_itself_is_one_line(
    mymodule, capsys, command: str, reference: str
) -> None:
    mymodule(
        "from ropelab.math.scaling import Scaling, Unscaled\n"
        "class Empty(Scaling):\n"
        "    name = 'empty'\n"
        "class Different(Unscaled):\n"
        "    name = 'different'\n"
        "    def __init__(self, number): self.number = number\n"
    )
    status, out, err = typed(capsys, *command.split(), reference, "--no-limits")
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert reference.partition(":")[2] in err


@pytest.mark.parametrize("text", ["abc", "2.5"])
def test_a_limit_of_cores_that_is_no_number_is_one_line(
    mymodule, capsys, monkeypatch, text: str
) -> None:
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", text)
    status, _, err = typed(capsys, "freqs", "--head-dim", "16")
    assert (status, err.count("\n")) == (2, 1)
    assert f"got '{text}'" in err


def test_a_module_that_ends_the_process_is_one_line(mymodule, capsys) -> None:
    mymodule("raise SystemExit(3)")
    status, out, err = typed(capsys, "freqs", "--method", "mymodule:MyRoPE")
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert "SystemExit" in err


PRINTS = MODULE.replace(
    "        slow = ", '        print("from the method")\n        slow = '
)


def test_what_own_code_prints_is_no_part_of_a_document(
    mymodule, capsys: pytest.CaptureFixture[str]
) -> None:
    mymodule(f'print("from the module")\n{PRINTS}')
    with pytest.raises(SystemExit) as stop:
        main(["freqs", "--method", "mymodule:MyRoPE(factor=2)", "--json"])
    out, err = capsys.readouterr()
    assert stop.value.code == 0
    assert json.loads(out)["experiment"] == "freqs"
    assert {"from the module", "from the method"} <= {*err.splitlines()}


# Ways to write to stdout that pass by `sys.stdout`, and ways to end a program.
WAYS_TO_PRINT = """
    os.write(1, b"printed 1\\n")
    subprocess.run(["echo", "printed 2"])
    sys.__stdout__.write("printed 3\\n")
"""
WAYS_TO_END = [
    "os._exit(0)",
    "posix._exit(0)",
    'os.execlp("true", "true")',
    "run_in_thread(os._exit)",
]
HARMLESS = "if os.fork() == 0: os._exit(0)", "atexit.register(lambda: os._exit(1))"


@pytest.fixture
def run_method(mymodule):
    """Run a process that asks a method for its plan, after some lines of code."""

    def run(lines: str) -> subprocess.CompletedProcess[str]:
        body = indent(dedent(lines).strip(), " " * 8)
        text = MODULE.replace("        slow = ", f"{body}\n        slow = ")
        Path("mymodule.py").write_text(
            f"""
import atexit, os, posix, subprocess, sys, threading
def run_in_thread(function):
    thread = threading.Thread(target=lambda: function(0))
    thread.start()
    thread.join()
{text}"""
        )
        command = [sys.executable, "-m", "ropelab", "freqs", "--head-dim", "8"]
        command += ["--json", "--method", "mymodule:MyRoPE(factor=2)"]
        return subprocess.run(command, capture_output=True, text=True)

    return run


@pytest.mark.processes
def test_what_own_code_writes_past_python_is_no_part_of_a_document(run_method) -> None:
    done = run_method(WAYS_TO_PRINT)
    assert done.returncode == 0
    assert json.loads(done.stdout)["experiment"] == "freqs"
    lines = {*done.stderr.splitlines()}
    assert {"printed 1", "printed 2", "printed 3"} <= lines


@pytest.mark.processes
@pytest.mark.parametrize("end", WAYS_TO_END)
def test_own_code_does_not_end_the_process_without_a_word(run_method, end) -> None:
    done = run_method(end)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "mymodule.py, line" in done.stderr


@pytest.mark.processes
@pytest.mark.parametrize("line", HARMLESS)
def test_own_code_may_end_its_children_and_not_change_the_status(
    run_method, line: str
) -> None:
    done = run_method(line)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["experiment"] == "freqs"


@pytest.mark.parametrize(
    "change",
    [
        'object.__setattr__(geometry, "base", 77.0)',
        'object.__setattr__(geometry, "rotary_dim", 4)',
        'object.__setattr__(self, "factor", 77.0)',
        'vars(self)["factor"] = 77.0',
    ],
)
def test_a_plan_does_not_change_what_it_is_asked_for(
    mymodule, capsys, change: str
) -> None:
    mymodule(MODULE.replace("        slow = ", f"        {change}\n        slow = "))
    status, out, err = typed(capsys, "freqs", "--method", "mymodule:MyRoPE(factor=4)")
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert "mymodule" in err


def test_a_plan_keeps_its_numbers_when_the_next_one_is_made(mymodule) -> None:
    buffer = "kept = __import__('numpy').zeros(4)"
    fills = "kept[:] = geometry.inv_freq / length\n        return RopePlan(kept)"
    mymodule(f"{buffer}\n{re.sub(r'return RopePlan.*', fills, MODULE)}")
    method: Any = own.find_own("methods", "mymodule:MyRoPE")
    geometry = Geometry(8, 1e4, 64)
    first = method().plan(geometry, 2)
    method().plan(geometry, 4)
    assert first.inv_freq.tolist() == (geometry.inv_freq / 2).tolist()


def test_a_frequency_of_minus_zero_is_no_rotation(mymodule) -> None:
    mymodule(re.sub(r"return RopePlan.*", "return RopePlan(-0.0 * slow)", MODULE))
    method: Any = own.find_own("methods", "mymodule:MyRoPE")
    plan = method().plan(Geometry(8, 1e4, 64), 2)
    assert [str(each) for each in plan.inv_freq.tolist()] == ["0.0"] * 4


@pytest.mark.parametrize("place", ["module", "method"])
def test_results_stay_in_the_working_folder(mymodule, capsys, place: str) -> None:
    here = Path.cwd()
    Path("other").mkdir()
    line = 'import os; os.chdir("other")'
    text = MODULE.replace("        slow = ", f"        {line}\n        slow = ")
    if place == "module":
        text = f"{line}\n{MODULE}"
    mymodule(text)
    status, _, _ = typed(capsys, "freqs", "--method", "mymodule:MyRoPE(factor=4)")
    assert (status, Path.cwd()) == (0, here)
    assert list(here.glob("results/freqs/*/manifest.json"))
    assert not list(here.glob("other/*"))


def test_a_task_cannot_change_the_distances_that_its_answer_must_have(
    mymodule, corpus
) -> None:
    easier = """
def my_task(seed, distances, context, rows, background):
    distances[:] = distances[:1]
    return copy_trials(seed, distances, context, rows, background)
"""
    mymodule(f"{MODULE}\n{MORE}\n{easier}")
    values = {**SMALL, "corpus": corpus, "tasks": "mymodule:my_task"}
    config: Any = Lab().prepare("extrapolate", values).config
    task = make_task_beyond_training(config, "mymodule:my_task")
    assert isinstance(task, Retrieval)
    with pytest.raises(InputError, match="each of the distances"):
        task.trials(0, 64, 2)


@pytest.mark.parametrize(
    "failure",
    [
        "open('/proc/nowhere')",
        "raise BrokenPipeError(32, 'x')",
        "raise SystemExit(0)",
        "raise GeneratorExit",
        "raise type('Odd', (BaseException,), {})('x')",
        "raise MemoryError('x')",
        "f = lambda: f(); f()",
        "raise StopIteration",
        "raise ValueError('x' * 10**6)",
        "raise type('Odd', (Exception,), {'__str__': lambda self: 1 / 0})",
    ],
)
@pytest.mark.parametrize("place", ["module", "method"])
def test_own_code_may_fail_in_any_way(
    mymodule, capsys: pytest.CaptureFixture[str], failure: str, place: str
) -> None:
    if place == "module":
        mymodule(f"{failure}\n{MODULE}")
    else:
        mymodule(
            MODULE.replace("        slow = ", f"        {failure}\n        slow = ")
        )
    with pytest.raises(SystemExit) as stop:
        main(["freqs", "--method", "mymodule:MyRoPE(factor=2)"])
    out, err = capsys.readouterr()
    assert (stop.value.code, out, err.count("\n")) == (2, "", 1)
    assert "mymodule" in err
    assert len(err) < 1000


@pytest.mark.parametrize(
    ("returned", "kind"), [("None", "NoneType"), ("(geometry.inv_freq, 1.0)", "tuple")]
)
def test_what_is_no_plan_is_refused_by_its_type(
    mymodule, capsys, returned: str, kind: str
) -> None:
    mymodule(re.sub(r"return RopePlan\(.*\)\n", f"return {returned}\n", MODULE))
    status, out, err = typed(capsys, "freqs", "--method", "mymodule:MyRoPE(factor=4)")
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert kind in err
