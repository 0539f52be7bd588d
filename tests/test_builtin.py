"""The configs that come with ropelab, and what a package index and a citation say of
it.
"""

import tomllib
from pathlib import Path

import pytest

import ropelab
from ropelab.cli import app as cli
from ropelab.runs import builtin

ROOT = Path(__file__).parents[1]
CONFIGS = ROOT / "configs"


@pytest.fixture
def call(tmp_path, monkeypatch, capsys):
    """Type a command in an empty folder; returns status, stdout and stderr."""
    monkeypatch.chdir(tmp_path)

    def typed(*arguments):
        with pytest.raises(SystemExit) as stop:
            cli.main(list(arguments))
        out, err = capsys.readouterr()
        return stop.value.code, out, err

    return typed


def test_run_without_arguments_lists_every_config_with_what_it_is(call, tmp_path):
    status, out, err = call("run")
    assert (status, err) == (0, "")
    lines = [
        line.split(maxsplit=1) for line in out.splitlines() if line.startswith("  ")
    ]
    names = {name for name, _ in lines}
    files = [file.relative_to(CONFIGS) for file in CONFIGS.rglob("*.toml")]
    assert names == {file.with_suffix("").as_posix() for file in files}
    assert all(len(about) > 20 for _, about in lines)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("precision", "precision.toml"),
        ("precision.toml", "precision.toml"),
        ("smoke", "smoke"),
        ("smoke/freqs", "smoke/freqs.toml"),
        ("configs", "."),
        ("configs/freqs.toml", "freqs.toml"),
    ],
)
def test_a_name_means_the_config_that_comes_along(typed, meant, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert builtin.find_config(Path(typed)) == CONFIGS / meant


def test_ones_own_file_comes_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("precision").mkdir()
    assert builtin.find_config(Path("precision")) == Path("precision")


@pytest.mark.parametrize("typed", ["/", ".", ".."])
def test_a_folder_without_a_name_is_itself(typed: str) -> None:
    assert builtin.find_config(Path(typed)) == Path(typed)


def test_a_config_that_comes_along_is_run_by_its_name(call, tmp_path):
    status, _, _ = call("run", "smoke/freqs")
    assert status == 0
    assert (tmp_path / "results" / "index.html").exists()


def test_a_name_of_nothing_is_refused_in_one_line(call):
    for typed, nearest in (
        ("precison", "precision"),
        ("extrapolate.tml", "extrapolate"),
    ):
        sentence = f"no config file at {typed}; did you mean '{nearest}'?"
        assert call("run", typed) == (2, "", f"ropelab: {sentence}\n")


def test_the_version_stands_in_the_citation_and_in_the_changes():
    assert f"\nversion: {ropelab.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"\n## {ropelab.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_a_package_index_has_something_to_show():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {"description", "readme", "license", "keywords", "classifiers"} <= set(
        project
    )


def test_every_file_that_is_no_code_is_installed_with_the_package():
    """A data file that the wheel lacks ends each installed command with a defect."""
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    patterns = tool["setuptools"]["package-data"]["ropelab"]
    package = ROOT / "ropelab"
    packed = {file for pattern in patterns for file in package.glob(pattern)}
    ours = {file for file in package.rglob("*") if file.is_file()}
    no_data = {file for file in ours if file.suffix in (".py", ".pyc")}
    assert ours - no_data == packed
