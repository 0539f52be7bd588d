"""Figures inside the page: smaller than on disk, the same picture, as data in the file."""

import base64
import io
from pathlib import Path

from PIL import Image

from ropelab.notices import say

WIDTH = 800
COLORS = 40


def embedded(path: Path) -> str:
    """A PNG as a data address, at most WIDTH pixels wide and with COLORS colours.

    Empty for a file that is not there or cannot be read, which is said.
    """
    try:
        with Image.open(path) as picture:
            plain = picture.convert("RGB")
    except (OSError, ValueError, SyntaxError) as error:
        say(f"left out: {path}: {error}")
        return ""
    if plain.width > WIDTH:
        height = round(plain.height * WIDTH / plain.width)
        plain = plain.resize((WIDTH, height), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    plain.quantize(COLORS, Image.Quantize.FASTOCTREE).save(buffer, format="PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"
