"""The names of the keys of configurations: what a key does, and which one a name means.

The keys and what they do are in keys.toml.
"""

import re
from difflib import get_close_matches
from functools import lru_cache

from ropelab.runs.files import read_table_beside

# Groups of keys: "block" (inside rope_scaling or rope_parameters), "top" (beside it) and
# "gguf". Each gives what a key does, by the name of the key.
KEYS: dict[str, dict[str, str]] = read_table_beside(__file__, "keys")
# The dicts of a file that are about rotation.
BLOCKS = ("rope_scaling", "rope_parameters")
# The least similarity (difflib's ratio, from 0 to 1) at which a name is taken for the
# name of a block. rope_scalling and ropeScaling reach it; rope_scaling_factor, which is
# a separate key, does not.
BLOCK_SIMILARITY = 0.9
# The least similarity, by the same ratio, at which a known key is proposed for an
# unknown name.
KEY_SIMILARITY = 0.7
# Blanks and characters without width.
INVISIBLE = re.compile(r"[\s\u200b-\u200f\ufeff]")


def is_about_rope(name: str) -> bool:
    """Return True if the name of a key says that the key is about rotation."""
    if name in KEYS["top"] or name in KEYS["gguf"]:
        return True
    if "rope" in name.lower() or "rotary" in name.lower():
        return True
    return find_misspelt_key(name) != ""


def explain_key(path: str) -> str:
    """Return in words what a known key does; empty for an unknown one.

    ``path``: the key with the dicts around it, as in `text_config.rope_scaling.factor`.
    """
    if path in KEYS["gguf"]:
        return KEYS["gguf"][path]
    *parents, name = path.split(".")
    is_in_block = any(block in parents for block in BLOCKS)
    group = "block" if is_in_block else "top"
    return KEYS[group].get(name, "")


@lru_cache(maxsize=4096)
def find_misspelt_key(name: str) -> str:
    """Return the known key that a wrongly spelt name stands for.

    Such a name differs from the key in blanks, case, dashes or letters of another
    alphabet. The name of a block may differ in any letter. The result is empty for a
    name that is spelt right, and for one that looks like no key.

    >>> find_misspelt_key("rope_theta "), find_misspelt_key("Rope-Scaling")
    ('rope_theta', 'rope_scaling')
    >>> find_misspelt_key("rope_theta")
    ''
    """
    known = (*BLOCKS, *KEYS["top"], *KEYS["block"])
    if name in known:
        return ""

    visible = INVISIBLE.sub("", name).replace("-", "_").lower()
    for key in known:
        if _looks_like(visible, key):
            return key
    blocks = get_close_matches(visible, BLOCKS, n=1, cutoff=BLOCK_SIMILARITY)
    return blocks[0] if blocks else ""


def _looks_like(name: str, key: str) -> bool:
    """Return True if each Latin letter of a name equals the letter at the same place of
    the key.

    Letters of other alphabets may look like any letter: the Cyrillic о as o.
    """
    has_latin_letters = any(letter.isascii() for letter in name)
    if len(name) != len(key) or not has_latin_letters:
        return False
    for letter, letter_of_key in zip(name, key, strict=True):
        if letter.isascii() and letter != letter_of_key:
            return False
    return True


def find_nearest_key(path: str) -> str:
    """Return the known key whose name is nearest to an unknown name; empty if no key is
    near.
    """
    name = path.rsplit(".", 1)[-1]
    misspelt = find_misspelt_key(name)
    if misspelt:
        return misspelt

    # A name can be known in one dict of a file and unknown in another. Then it must not
    # be proposed for itself.
    other_keys = [key for key in {**KEYS["block"], **KEYS["top"]} if key != name]
    matches = get_close_matches(name, other_keys, n=1, cutoff=KEY_SIMILARITY)
    return matches[0] if matches else ""
