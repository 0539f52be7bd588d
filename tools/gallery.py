"""Write the index of the committed runs, in today's words, without running anything.

python tools/gallery.py
"""

from pathlib import Path

from ropelab.restate import restate
from ropelab.show.gallery import write_index

REFERENCE = Path(__file__).parents[1] / "results" / "reference"

if __name__ == "__main__":
    print(write_index(REFERENCE, "README.md", restate=restate))
