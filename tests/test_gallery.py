"""The index shows every run: figure, answer, command, and links that exist."""

import json
import re

from ropelab.lab import Lab
from ropelab.runs.manifest import write_manifest
from ropelab.show.gallery import write_index
from tests.toy import ToyConfig, toy


def test_the_index_shows_what_is_there(tmp_path):
    lab = Lab(tmp_path)
    for base in (5e5, 7e5):
        lab.carry_out(toy(), ToyConfig(base=base))
    text = write_index(tmp_path).read_text()
    assert "The base is 500000." in text
    assert "`ropelab toy --base 700000.0`" in text
    links = re.findall(r"\]\(([^)#]+)\)", text)
    assert len(links) == 2 * 3
    assert all((tmp_path / link).exists() for link in links)


def test_the_entries_point_to_the_headings(tmp_path):
    Lab(tmp_path).carry_out(toy(), ToyConfig(base=5e5))
    text = write_index(tmp_path).read_text()
    (anchor,) = re.findall(r"\(#([^)]+)\)", text)
    (heading,) = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert anchor == re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def test_an_unfinished_run_is_not_shown(tmp_path):
    (tmp_path / "toy/.half.new").mkdir(parents=True)
    (tmp_path / "toy/.half.new/manifest.json").write_text("{}")
    assert "half" not in write_index(tmp_path).read_text()


def test_the_index_says_what_was_measured_in_earlier_runs(tmp_path):
    folder = Lab(tmp_path).carry_out(toy(), ToyConfig(base=5e5)).folder
    manifest = json.loads((folder / "manifest.json").read_text())
    more = {"seconds": 11.4, "measurements": {"computed": 2, "reused": 5}}
    write_manifest(folder, manifest | more)
    text = write_index(tmp_path).read_text()
    assert "; 11 s from start to end (5 of 7 measurements from earlier runs)." in text
