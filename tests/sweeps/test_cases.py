"""Files that ask for many runs: what they may say, and what is refused before anything
runs.
"""

from pathlib import Path

import pytest

from ropelab.lab import Lab
from ropelab.runs.errors import InputError
from ropelab.sweeps.cases import MOST_RUNS, read_sweep, read_sweeps
from tests.test_cli import call, visible
from tests.texts import mentions

__all__ = ["call"]  # a fixture
FREQS = 'experiment = "freqs"\n'


def sweep(folder: Path, text: str):
    path = folder / "x.toml"
    path.write_text(FREQS + text)
    return read_sweep(path, Lab())


def configs(found):
    return [plan.config for plan in found.plans]


def test_a_grid_is_every_combination(tmp_path):
    found = sweep(
        tmp_path, 'factor = 2\n[grid]\nbase = [1e4, "1e6"]\nmethod = ["pi", "ntk"]\n'
    )
    values = [(config.base, config.method, config.factor) for config in configs(found)]
    assert values == [(1e4, "pi", 2), (1e4, "ntk", 2), (1e6, "pi", 2), (1e6, "ntk", 2)]
    assert found.keys == ("base", "method")


def test_cases_may_change_what_stands_above_them_and_have_titles(tmp_path):
    found = sweep(
        tmp_path,
        'title = "T"\nbase = 1e5\n[[case]]\nfactor = 2\n[[case]]\nbase = 1e6\ntitle ='
        ' "large"\n',
    )
    assert [(c.base, c.factor) for c in configs(found)] == [(1e5, 2.0), (1e6, 4.0)]
    assert [plan.label.title for plan in found.plans] == ["T: factor=2", "large"]
    assert found.keys == ("factor", "base")


def test_a_list_is_one_value_of_a_key_that_holds_lists(tmp_path):
    path = tmp_path / "x.toml"
    path.write_text('experiment = "base"\n[grid]\ncontext = ["1k", ["1k", "2k"]]\n')
    found = read_sweep(path, Lab())
    assert [config.context for config in configs(found)] == [(1024,), (1024, 2048)]


def test_other_spellings_of_a_key_count_as_the_key(tmp_path):
    assert sweep(tmp_path, "[grid]\nrope_theta = [1e4, 1e6]\n").keys == ("base",)
    assert sweep(tmp_path, "[grid]\npartial_rotary_factor = [0.5, 1]\n").keys == (
        "rotary_dim",
    )


def test_what_is_the_same_in_all_runs_is_no_key(tmp_path):
    assert sweep(tmp_path, "[grid]\nbase = [1e4, 1e5]\nfactor = [4]\n").keys == (
        "base",
    )
    assert sweep(tmp_path, "base = 1e4\n").keys == ()


def test_every_run_is_called_after_its_file_and_its_case(tmp_path):
    label = sweep(tmp_path, "[grid]\nbase = [1e4, 1e5]\n").plans[1].label
    assert label.name == "x_base=100000"
    assert label.origin == f"{tmp_path / 'x.toml'}, case 2 (base=100000)"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("grid = 5", r"x\.toml: \[grid\] must be a table of lists"),
        ("[grid]", r"\[grid\] must be a table of lists"),
        ("[grid]\nbase = 1e4", "grid: base must be a list of values, got 10000.0"),
        ("[grid]\nbase = []", "grid: base must be a list of values"),
        ("base = 1e4\n[grid]\nbase = [1e4]", r"'base' is in \[grid\] and above it"),
        (
            "[grid]\nbase = [1e4]\n[[case]]\nbase = 1e5",
            r"give \[grid\] or \[\[case\]\], not both",
        ),
        ("case = 3", r"each run must be a table under \[\[case\]\]"),
        ("case = []", r"each run must be a table under \[\[case\]\]"),
        (
            "[grid]\nbse = [1e4, 1e5]",
            r"case 1 \(bse=10000\): unknown key 'bse'; did you",
        ),
        (
            "[grid]\nbase = [1e4, 0.5]",
            r"x\.toml, case 2 \(base=0\.5\): base must be greater",
        ),
        ('[[case]]\nmethod = "yarm"', r"case 1 \(method=yarm\): .*did you mean 'yarn'"),
        (
            "[[case]]\ntitle = 3",
            r"case 1 \(nothing of its own\): title must be text, got 3",
        ),
        (
            '[grid]\nbase = [1e4, "2e4", 10_000]',
            r"x\.toml: case 3 is the same run as case 1",
        ),
        ("[[case]]\n[[case]]", "case 2 is the same run as case 1"),
        ("[grid]\nexperiment = ['base']", "unknown key 'experiment'"),
        (
            f"[grid]\nfactor = {list(range(1, MOST_RUNS + 2))}",
            f"asks for {MOST_RUNS + 1} runs; at most {MOST_RUNS}",
        ),
        (
            (
                f"[grid]\nbase = {[10.0] * 1000}\nfactor = {[4] * 1000}\ntrain_len ="
                f" {[9] * 1000}"
            ),
            "asks for 1000000000 runs",
        ),
        ('[[case]]\nmodel = ["x"]', r"case 1 \(model=x\): unknown model"),
    ],
)
def test_what_cannot_be_run_is_refused_and_the_file_the_case_and_the_key_are_named(
    tmp_path, text, sentence
):
    with pytest.raises(InputError, match=sentence) as refusal:
        sweep(tmp_path, text)
    assert "\n" not in str(refusal.value)
    assert "x.toml" in str(refusal.value)


def test_everything_is_checked_before_the_first_run(call):
    Path("a.toml").write_text(FREQS)
    Path("b.toml").write_text(
        'experiment = "base-empirical"\n[grid]\ncorpus = ["/no/such"]\n'
    )
    status, out, err = call("run", "a.toml", "b.toml")
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert mentions(err, "b.toml, case 1 (corpus=/no/such):")
    assert [Path(path).name for path in visible(Path.cwd())] == ["a.toml", "b.toml"]


def test_a_case_beyond_the_limits_is_refused_before_the_first_run(call):
    Path("a.toml").write_text('experiment = "base"\n[grid]\ncontext = [1024, 1e14]\n')
    status, _, err = call("run", "a.toml")
    assert status == 2
    assert mentions(err, "a.toml, case 2 (context=1e14):")
    assert "--no-limits allows it" in err
    assert not Path("results").exists()


def test_a_single_command_says_who_takes_many_runs(call):
    Path("a.toml").write_text(FREQS + "[grid]\nbase = [1e4, 1e5]\n")
    status, _, err = call("freqs", "--config", "a.toml")
    assert status == 2
    assert mentions(err, "a.toml", "ropelab run a.toml")


def test_folders_are_read_file_by_file(tmp_path):
    (tmp_path / "b.toml").write_text(FREQS)
    (tmp_path / "a.toml").write_text(FREQS + "[grid]\nbase = [1e4, 1e5]\n")
    assert [len(found.plans) for found in read_sweeps([tmp_path], Lab())] == [2, 1]
