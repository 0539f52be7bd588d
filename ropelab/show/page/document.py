"""One HTML file that needs nothing else, with a policy that allows nothing else.

Everything that comes from a run is escaped by the template; the policy names the page's own script
and style by their hash, so that nothing else would run even if it got in.
"""

import base64
import hashlib
import json
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ropelab.runs.folders import replaced_file
from ropelab.show.terminal import format_value


def write_page(path: Path, template: str, scripts: Sequence[str], **values: Any) -> Path:
    """Fill a template and put the file in place, whole or not at all."""
    script = "\n".join(_static(name) for name in scripts)
    style = _static("page.css")
    text = (
        _templates()
        .get_template(template)
        .render(script=Markup(script), style=Markup(style), policy=_policy(script, style), **values)
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    with replaced_file(path) as fresh:
        fresh.write_text(text, encoding="utf-8")
    return path


def _policy(script: str, style: str) -> str:
    """A Content-Security-Policy for a page that asks nobody for anything."""
    return (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def as_data(value: Any) -> Markup:
    """A value as JSON that can stand inside a script element."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    escaped = text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
    return Markup(escaped)


@cache
def _templates() -> Environment:
    environment = Environment(
        loader=PackageLoader("ropelab.show.page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"data": as_data, "value": format_value}
    return environment


@cache
def _static(name: str) -> str:
    return (files("ropelab.show.page") / "static" / name).read_text(encoding="utf-8").strip()
