"""Write docs/compatibility.md: which runtime rotates which published model rightly.

python tools/compatibility.py           say whether the page is as it should be
python tools/compatibility.py --write   write it
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from ropelab.audit.compatibility import (
    Line,
    TableCell,
    compare_models,
    count_verdicts,
    describe_scaling,
    list_columns,
    read_published,
)
from ropelab.readers import registry
from ropelab.runs.sentences import join_names, write_number

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "compatibility.md"
MARKS = {"run": "ʳ", "by rule": "ᵏ", "read": "ˢ", "": ""}
# The mark of a cell whose runtime was not looked at for some part of the model.
PARTIAL = "°"
TEMPLATE = ROOT / "docs" / "templates" / "compatibility.md"
PUBLISHED = ROOT / "docs" / "templates" / "published.json"


def write_page() -> str:
    """Return the whole page."""
    checked, models = read_published(PUBLISHED)
    lines = list(compare_models(models))
    releases = [f"{each.name} {each.version}" for each in list_columns()]
    template = TEMPLATE.read_text(encoding="utf-8")
    return template.format(
        answer=write_answer(lines),
        checked=checked,
        releases=join_names(releases),
        own=registry.RUNTIMES[registry.REFERENCE].version,
        table=write_table(lines),
        sources=write_sources(lines),
    )


def write_table(lines: Sequence[Line]) -> str:
    """Return a row per model, the model's own code first of the runtimes."""
    names = [runtime.name for runtime in list_columns()]
    names.remove(registry.REFERENCE)
    titles = ["model", "base", "width", "length", "scaling", "layers", "own code"]
    titles += names
    text = write_row(titles) + write_row(["---"] * len(titles))
    for line in lines:
        cells = [write_cell(line.cells[registry.REFERENCE])]
        for name in names:
            cells.append(write_cell(line.cells[name]))
        text += write_row([*describe_model(line), *cells])
    return text


def write_sources(lines: Sequence[Line]) -> str:
    text = ""
    for line in lines:
        model = line.model
        text += f"- {model.name}: {model.source} ({model.date})\n"
    return text


def write_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |\n"


def describe_model(line: Line) -> list[str]:
    """Return the first columns of a row."""
    layers = "" if line.layers is None else str(line.layers)
    spec = line.spec
    if spec is None:
        return [line.model.name, "", "", "", "", layers]
    width = f"{spec.rotary_dim} of {spec.head_dim}"
    if spec.rotary_dim == spec.head_dim:
        width = str(spec.rotary_dim)
    return [
        line.model.name,
        write_number(spec.base),
        width,
        str(spec.length),
        describe_scaling(spec),
        layers,
    ]


def write_cell(cell: TableCell) -> str:
    mark = MARKS[cell.evidence]
    words = {
        "own code": "=",
        "agrees": "=",
        "refuses": "refuses",
        "reads": "reads",
        "not read": "-",
        "differs": f"**{cell.code}** {cell.words}",
    }
    if cell.is_partial:
        mark += PARTIAL
    return words[cell.verdict] + mark


def write_answer(lines: Sequence[Line]) -> str:
    """Say which runtime reads how many models otherwise than their own code."""
    known = [line for line in lines if line.spec is not None]
    parts = []
    for runtime in list_columns():
        if runtime.name == registry.REFERENCE:
            continue
        counts = count_verdicts(lines, runtime.name)
        other = counts.get("differs", 0)
        read = counts.get("agrees", 0) + other
        refused = counts.get("refuses", 0)
        part = f"{runtime.name} {other} of the {read} that it reads"
        if refused:
            part += f" (and refuses {refused})"
        parts.append(part)
    return (
        f"Of {len(lines)} published models the own code of {len(known)} was read; of"
        f" these are read otherwise than by it: {'; '.join(parts)}."
    )


def main() -> int:
    text = write_page()
    if "--write" in sys.argv[1:]:
        PAGE.write_text(text, encoding="utf-8")
        return 0
    is_current = PAGE.exists() and PAGE.read_text(encoding="utf-8") == text
    print("current" if is_current else "differs: make compatibility")
    return 0 if is_current else 1


if __name__ == "__main__":
    sys.exit(main())
