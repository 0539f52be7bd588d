"""One HTML file that needs nothing else, with a policy that allows nothing else."""

import base64
import gzip
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ropelab.runs.sentences import verdict_and_rest
from ropelab.show.drawn import write
from ropelab.show.terminal import format_value

# In the title of every page.
MARK = "ropelab</title>"


def write_page(
    path: Path, template: str, scripts: Sequence[str], **values: Any
) -> Path:
    """Fill a template and put the file in place, whole or not at all."""
    script = "\n".join(map(_static, scripts))
    style = _static("page.css")
    # The policy names the page's own script and style by their hash: all that comes
    # from a run is escaped by the template, and would not be executed even if it were
    # not.
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}';"
        " img-src data:; base-uri 'none'; form-action 'none'"
    )
    page = {"script": Markup(script), "style": Markup(style), "policy": policy}
    text = rendered(template, FILTERS, **page, **values)
    return write({path.name: text.encode()}, path.parent, MARK)[0]


def as_data(value: Any) -> Markup:
    """Return a value as JSON that can be inside a script element."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # `</script>` or `<!--` in a value would end or open something.
    return Markup(
        text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
    )


def packed(value: Any) -> str:
    """Return a value as JSON, compressed and in letters: a third of the room, for large
    data.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


FILTERS: Mapping[str, Callable[[Any], Any]] = {
    "data": as_data,
    "packed": packed,
    "value": format_value,
    "verdict": lambda answer: verdict_and_rest(answer)[0],
}


def rendered(
    template: str, filters: Mapping[str, Callable[[Any], Any]], **values: Any
) -> str:
    """Fill a template; in HTML all values are escaped."""
    # A misspelt name in a template is an error (StrictUndefined), not an empty place in
    # the page.
    environment = Environment(
        loader=PackageLoader("ropelab.show.page"),
        autoescape=".html" in template,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= filters
    return environment.get_template(template).render(**values)


def _static(name: str) -> str:
    return (
        (files("ropelab.show.page") / "static" / name)
        .read_text(encoding="utf-8")
        .strip()
    )
