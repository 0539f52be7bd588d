"""The tools that fetch what is not committed: what they write, without a network."""

import io
import sys
import tarfile
from pathlib import Path

import pytest

from ropelab.cli.app import main
from ropelab.experiments.extrapolate import ExtrapolateConfig
from ropelab.runs.config import build
from tests.imports import loaded
from tests.texts import mentions

TOOLS = Path(__file__).parents[1] / "tools"


@pytest.fixture
def tool(monkeypatch):
    """Loads a tool as it is when it is run as a script."""
    monkeypatch.syspath_prepend(TOOLS)

    yield lambda name: loaded(TOOLS / f"{name}.py")
    sys.modules.pop("packages", None)


def packed(archive: Path, files: dict[str, str]) -> Path:
    """An archive of those files."""
    with tarfile.open(archive, "w:gz") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
    return archive


def test_only_text_of_the_documentation_is_written_with_its_source(tool, tmp_path):
    files = {
        "django-5.2.8/docs/ref/forms.txt": "Forms",
        "django-5.2.8/docs/conf.py": "code",
        "django-5.2.8/README.txt": "not inside",
    }
    folder = tmp_path / "text"
    docs = tool("django_docs")
    docs.unpack(packed(tmp_path / "sdist.tar.gz", files), folder)
    written = {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file()
    }
    assert written == {"ref/forms.txt", ".source"}
    assert (folder / "ref/forms.txt").read_text() == "Forms"
    assert docs.SHA256 in (folder / ".source").read_text()


def test_an_archive_that_reaches_outside_is_refused(tool, tmp_path):
    archive = packed(
        tmp_path / "sdist.tar.gz", {"django-5.2.8/docs/../../evil.txt": "text"}
    )
    with pytest.raises(SystemExit, match="outside"):
        tool("django_docs").unpack(archive, tmp_path / "text" / "inner")
    assert not list(tmp_path.rglob("evil.txt"))


def test_a_file_that_is_not_the_published_one_is_refused(tool, tmp_path):
    file = tmp_path / "package.tar.gz"
    file.write_bytes(b"something else")
    with pytest.raises(SystemExit, match="not the file that was published"):
        tool("packages").fetched("package==1", file, "0" * 64)


def test_where_a_corpus_is_from_is_told_beside_its_fingerprint(corpora, tmp_path):
    small = {"train_len": 64, "test_len": 256, "documents": 3}
    plain = build(ExtrapolateConfig, {"corpus": corpora[0], **small}).inputs()
    assert set(plain) == {"corpus", "documents"}
    for path in Path(corpora[0]).iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / ".source").write_text("Invented words, for tests\n")
    told = build(ExtrapolateConfig, {"corpus": tmp_path.as_posix(), **small}).inputs()
    assert told == {**plain, "corpus_source": "Invented words, for tests"}


def test_the_script_for_a_gpu_compares_what_a_device_computes_with_the_cast_plans(tool):
    told: dict[str, list[str]] = {}
    for line in tool("on_gpu").casts("cpu", True):
        if not line.startswith(" "):
            below = told[line.partition(":")[0]] = []
        else:
            below.append(line)
    for name in ("transformers_to_bfloat16", "half_cache_bfloat16"):
        assert all("100.0000% as predicted" in line for line in told[name])
    # A CPU has no TF32, so the plan does not hold there, and the script shows it.
    assert len(told["tf32_matmul"]) == 4
    assert not any("100.0000%" in line for line in told["tf32_matmul"])


def test_the_script_for_a_gpu_asks_for_nothing_that_the_command_line_refuses(
    tool, capsys
):
    trainings = [
        each
        for each in tool("on_gpu").parts("cpu", False)
        if "-m ropelab" in each.words
    ]
    assert len(trainings) == 2
    for part in trainings:
        words = part.words.replace("--results RESULTS", "--max-minutes 0.01").split()[
            2:
        ]
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code == 2
        assert "--max-minutes" in capsys.readouterr().err
    assert sum(each.seconds for each in tool("on_gpu").parts("cuda", False)) < 9 * 60


def test_the_script_for_a_gpu_goes_on_after_a_part_that_fails_or_takes_too_long(
    tool, tmp_path
):
    gpu = tool("on_gpu")
    failing = gpu.Part("?", "-m ropelab freqs --base nonsense", 60)
    told = gpu.answer(failing, tmp_path)
    assert mentions(told, "status 2", "ropelab:")
    assert "without an answer" in gpu.answer(
        gpu.Part("?", "-m timeit -n 1 -r 1 -s 0 while(1):0", 1), tmp_path
    )


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout of version 1.2.3, which was released."""
    (tmp_path / "ropelab").mkdir()
    (tmp_path / "ropelab" / "__init__.py").write_text('__version__ = "1.2.3"\n')
    (tmp_path / "CITATION.cff").write_text("cff-version: 1.2.0\nversion: 1.2.3\n")
    (tmp_path / "CHANGELOG.md").write_text(
        "# Changes\n\n## 1.2.3, 2026-11-30\n\n- New.\n\n## 1.2.2, 2026-10-01\n\n- Old.\n"
    )
    return tmp_path


def test_a_release_has_the_part_of_the_changelog_about_it(tool, checkout):
    assert tool("release").check_release("v1.2.3", checkout) == "- New."


@pytest.mark.parametrize(
    ("file", "old", "new", "says"),
    [
        ("ropelab/__init__.py", "1.2.3", "1.2.4", ("v1.2.3", "__init__.py", "1.2.4")),
        ("CITATION.cff", "1.2.3", "1.2.2", ("v1.2.3", "CITATION.cff", "1.2.2")),
        ("CHANGELOG.md", ", 2026-11-30", ", not released yet", ("not released yet",)),
        ("CHANGELOG.md", "## 1.2.3", "## 1.2.30", ("no part", "1.2.3")),
    ],
)
def test_what_is_not_ready_is_not_released(tool, checkout, file, old, new, says):
    path = checkout / file
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(ValueError) as refused:
        tool("release").check_release("v1.2.3", checkout)
    assert mentions(str(refused.value), *says)


@pytest.mark.parametrize("tag", ["1.2.3", "v1.2", "v1.2.3rc1", ""])
def test_a_tag_is_a_v_and_the_whole_version(tool, checkout, tag):
    with pytest.raises(ValueError):
        tool("release").check_release(tag, checkout)
