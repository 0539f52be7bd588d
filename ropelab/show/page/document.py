"""A page as one HTML file, which needs no other file and is not allowed to load one.

A content security policy in the page allows only the page's own script and style.
"""

import base64
import gzip
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from ropelab.runs.sentences import escape_unprintable, split_verdict
from ropelab.show.drawn import write_for_user
from ropelab.show.intervals import join_intervals
from ropelab.show.terminal import format_value

# A text in every page, by which ropelab knows its own files.
MARK = "ropelab</title>"

Filters = Mapping[str, Callable[[Any], Any]]


def write_page(
    path: Path, template: str, scripts: Sequence[str], **values: Any
) -> Path:
    """Fill a template, and write the page, whole or not at all."""
    script = "\n".join(map(_read_static, scripts))
    style = _read_static("page.css")
    # The policy allows the page's own script and style by their hashes. The template
    # escapes every text that comes from a run. Even if one were not escaped, the browser
    # would not execute it.
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}';"
        " img-src data:; base-uri 'none'; form-action 'none'"
    )
    page = {"script": Markup(script), "style": Markup(style), "policy": policy}
    text = render(template, FILTERS, **page, **values)
    (written,) = write_for_user({path.name: text.encode()}, path.parent, MARK)
    return written


def encode_data(value: Any) -> Markup:
    """Return a value as JSON that can be inside a script element."""
    text = _write_json(value)
    # The text `</script>` in a value would end the script element, and `<!--` would begin
    # a comment.
    for character in "&<>":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def pack(value: Any) -> str:
    """Return a value as compressed JSON in base64, which has a third of the size."""
    # gzip writes a time into its header. With 0 the same value always gives the same
    # text.
    content = gzip.compress(_write_json(value).encode(), mtime=0)
    return base64.b64encode(content).decode()


def _write_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _hash(text: str) -> str:
    """Return the hash of a script or a style as a policy names it."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


def _take_verdict(answer: str) -> str:
    verdict, _ = split_verdict(answer)
    return verdict


def _join_intervals(records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of a short table in which a value and its interval are one text:
    `0.52 [0.48, 0.56]` in the column of the value.
    """
    table = join_intervals(pd.DataFrame(records, dtype=object))
    return [
        {str(name): cell for name, cell in row.items()}
        for row in table.to_dict("records")
    ]


FILTERS: Filters = {
    "data": encode_data,
    "packed": pack,
    "value": format_value,
    "with_intervals": _join_intervals,
    "verdict": _take_verdict,
}


def _escape_controls(value: Any) -> Any:
    """Return a text of a run in which control characters and marks of direction are
    replaced by escapes.

    These characters could move the cursor of a terminal that shows the file, or reverse
    the order of letters. Ends of lines stay, and so does text that ropelab itself made
    for the page (`Markup`).
    """
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    lines = value.split("\n")
    return "\n".join(escape_unprintable(line) for line in lines)


def render(template: str, filters: Filters, **values: Any) -> str:
    """Fill a template; in HTML all values are escaped."""
    return _load_template(template, frozenset(filters.items())).render(**values)


# A template is translated to Python when it is loaded, which takes longer than to fill it.
# A sweep fills the same templates after every run.
@cache
def _load_template(
    name: str, filters: frozenset[tuple[str, Callable[..., Any]]]
) -> Template:
    environment = Environment(
        loader=PackageLoader("ropelab.show.page"),
        autoescape=".html" in name,
        # A misspelt name in a template is an error, not an empty place in the page.
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_escape_controls,
    )
    environment.filters |= dict(filters)
    return environment.get_template(name)


def _read_static(name: str) -> str:
    path = files("ropelab.show.page") / "static" / name
    return path.read_text(encoding="utf-8").strip()
