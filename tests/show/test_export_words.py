"""An export tells a run in the words and numbers that the page has."""

from ropelab.restate import restate
from ropelab.show.page.shown import find_runs
from tests.show.test_export import REFERENCE
from tests.test_cli import call

__all__ = ["call"]  # a fixture


def test_an_export_tells_a_run_as_the_page_does(call):
    (folder,) = REFERENCE.glob("precision/precision-implementations-????????")
    (run,) = find_runs([folder], restate=restate)
    status, out, _ = call("export", folder, "--format", "latex")
    assert status == 0
    words = "small models notice it from 0.049 of their deviation on"
    assert words in run.manifest["answer"]
    assert words in " ".join(out.split())


def test_an_exported_summary_has_the_columns_of_the_page(call):
    (folder,) = REFERENCE.glob("evaluate/smollm2-text-????????")
    status, out, _ = call("export", folder, "--table", "summary")
    assert status == 0
    assert "last_nll @12288" in out.splitlines()[0]
