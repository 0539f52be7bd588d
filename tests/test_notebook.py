"""The notebook in docs/ runs from top to bottom and prints what it shows."""

import ast
import json
from pathlib import Path

NOTEBOOK = Path(__file__).parents[1] / "docs" / "ropelab.ipynb"


def run_cell(source, names):
    """Execute a cell as a notebook does: the value of its last expression is what it
    shows.
    """
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, NOTEBOOK.name, "exec"), names)
    return last and eval(
        compile(ast.Expression(last.value), NOTEBOOK.name, "eval"), names
    )


def test_the_notebook_prints_what_it_shows(capsys):
    names: dict[str, object] = {}
    cells = [
        c for c in json.loads(NOTEBOOK.read_text())["cells"] if c["cell_type"] == "code"
    ]
    for cell in cells:
        shown = run_cell("".join(cell["source"]), names)
        printed = capsys.readouterr().out
        for output in cell["outputs"]:
            if output["output_type"] == "stream":
                assert printed == "".join(output["text"])
            elif "text/html" in output["data"]:
                assert shown._repr_html_() == "".join(output["data"]["text/html"])
            else:
                assert set(output["data"]) == {"image/png", "text/plain"}
                assert shown.axes
    assert len(cells) == 9
