"""The lines of compared runs keep the letters of their runs, also beside a run that has
other columns. The script of the page is run by node, without a browser.
"""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from ropelab.show import page

SCRIPT = Path(page.__file__).parent / "static" / "compare.js"
# Three runs, of which the second has other columns than the first.
SIDES = """
function linesOf(table) { return [{ name: table.line }]; }
function makeSide(letter, columns) {
  return { letter, table: { columns: new Set(columns), line: `base of ${letter}` } };
}
const view = { x: "pair", y: ["period"], series: [], where: {} };
const sides = [
  makeSide("A", ["pair", "period"]), makeSide("B", ["width"]), makeSide("C", ["pair", "period"]),
];
const [drawn, left] = splitByView(sides, view);
console.log(JSON.stringify({
  lines: drawn.flatMap((side) => nameLines(side, view)).map((line) => line.name),
  left: left.map((side) => side.letter),
}));
"""


def test_lines_have_the_letters_of_their_runs(tmp_path):
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node here: the page's comparison is not run")
    script = tmp_path / "compare.js"
    script.write_text(SCRIPT.read_text() + SIDES)
    printed = subprocess.run([node, script], capture_output=True, text=True, check=True)
    said = json.loads(printed.stdout)
    assert said["lines"] == ["base of A (A)", "base of C (C)"]
    assert said["left"] == ["B"]
