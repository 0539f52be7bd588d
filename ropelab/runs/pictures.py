"""Pictures of stored runs, which are read only if they are whole."""

import errno
import struct
from io import BytesIO
from pathlib import Path
from warnings import catch_warnings

from ropelab.runs.files import read_regular

# The most bytes of a figure.
LARGEST_PICTURE = 2**25
# The most pixels of a figure.
MOST_PIXELS = 2**25
# The last chunk of every PNG, with its checksum.
PNG_END = b"IEND\xaeB`\x82"


def read_png(path: Path) -> bytes:
    """Return the content of a PNG file after checking its checksums; OSError if it is
    no whole PNG, or larger than figures are.
    """
    from PIL import Image

    content = read_regular(path, LARGEST_PICTURE)
    try:
        # Pillow knows many formats, and starts other programs for some. It is told to
        # read PNG only.
        with catch_warnings(action="ignore", category=Image.DecompressionBombWarning):
            picture = Image.open(BytesIO(content), formats=["PNG"])
        if picture.width * picture.height > MOST_PIXELS:
            raise ValueError(f"more than {MOST_PIXELS} pixels")
        picture.verify()
        if not content.endswith(PNG_END):
            raise ValueError("something follows its end")
    except (
        OSError,
        SyntaxError,
        ValueError,
        struct.error,
        Image.DecompressionBombError,
    ) as error:
        raise OSError(errno.EINVAL, f"Not a whole PNG ({error})", str(path)) from None
    return content
