"""Text in a model's own tokens, begun as the model's tokenizer begins a text."""

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ropelab.errors import InputError
from ropelab.hf.facts import vocabulary_of
from ropelab.hf.folder import checked_config, located, stamp
from ropelab.hf.library import import_transformers, refusing

CHARACTERS_PER_TOKEN = 16
"""Of a long text only so many characters per wanted token are read first."""
MARGIN = 8
"""Tokens at the end of a text cut short, which may be others than in the whole text."""


def tokenized(
    path: Path, texts: tuple[bytes, ...], length: int, documents: int, bos: bool | None = None
) -> tuple[Int[Tensor, "documents length"], Float[Tensor, "documents"]]:
    """Windows of `length` tokens, each from the beginning of a text, and their bytes per token.

    Args:
        texts: where there is only one, its consecutive pieces are taken.
        bos: whether a token that begins texts stands first in each window, one of the `length`;
            None: if the tokenizer puts one there.
    Returns:
        The tokens, and the mean bytes of text per token, that first one not counted.
    Raises:
        InputError: no tokenizer, one that does not belong to the model, or too little text.
    """
    tokenizer = load_tokenizer(path)
    start = first_token(tokenizer, path, bos)
    wanted = length - len(start)
    rows: list[Tensor] = []
    ratios: list[float] = []
    for ids, size in _pieces(tokenizer, texts, wanted, documents):
        rows.append(torch.tensor([*start, *ids]))
        ratios.append(size / wanted)
    if len(rows) < documents:
        raise InputError(
            f"only {len(rows)} documents have {length} tokens, {documents} are needed; "
            "give longer text (--corpus) or ask for fewer documents"
        )
    tokens = torch.stack(rows)
    _check_known(path, int(tokens.max()))
    return tokens, torch.tensor(ratios, dtype=torch.float64)


def load_tokenizer(path: Path) -> Any:
    """The tokenizer of a model's folder, read once for as long as its files stay as they are.

    Raises:
        InputError: there is none.
    """
    path = located(path)
    checked_config(path)
    return _load_tokenizer(path, stamp(path))


@lru_cache(maxsize=2)
def _load_tokenizer(path: Path, files: object) -> Any:
    transformers = import_transformers()
    with refusing("no tokenizer in", path):
        tokenizer = transformers.AutoTokenizer.from_pretrained(
            path, local_files_only=True, trust_remote_code=False
        )
        # Texts longer than the model are what is measured here, not a mistake to warn of.
        tokenizer.model_max_length = int(1e30)
        tokenizer("a text", add_special_tokens=False)
        return tokenizer


def first_token(tokenizer: Any, path: Path, bos: bool | None) -> list[int]:
    """The token that begins a text, if there is to be one.

    Raises:
        InputError: it is asked for, and the tokenizer has none.
    """
    known = tokenizer.bos_token_id
    if bos is None:
        bos = known is not None and tokenizer("a text")["input_ids"][:1] == [known]
    if bos and known is None:
        raise InputError(f"the tokenizer in {path} has no token that begins a text")
    return [known] if bos else []


def _pieces(
    tokenizer: Any, texts: tuple[bytes, ...], length: int, count: int
) -> Iterator[tuple[list[int], int]]:
    """Up to `count` runs of `length` tokens, and how many bytes of text each is."""
    per_text = count if len(texts) == 1 else 1
    left = count
    for text in texts:
        ids, ends, characters = _encoded(tokenizer, text, length * per_text)
        for start in range(0, min(len(ids) - length + 1, length * per_text), length):
            if not left:
                return
            left -= 1
            begin = ends[start - 1] if start else 0
            piece = characters[begin : ends[start + length - 1]]
            yield ids[start : start + length], len(piece.encode())


def _encoded(tokenizer: Any, text: bytes, length: int) -> tuple[list[int], list[int], str]:
    """Token ids, the character after each token, and the characters."""
    whole = text.decode(errors="replace")
    characters = whole[: CHARACTERS_PER_TOKEN * (length + MARGIN)]
    ids, ends = _ids_and_ends(tokenizer, characters)
    if len(characters) < len(whole) and len(ids) < length + MARGIN:
        characters = whole
        ids, ends = _ids_and_ends(tokenizer, whole)
    return ids, ends, characters


def _ids_and_ends(tokenizer: Any, text: str) -> tuple[list[int], list[int]]:
    if tokenizer.is_fast:
        made = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        return made["input_ids"], [end for _, end in made["offset_mapping"]]
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    ends = [0]
    for token in ids:
        ends.append(ends[-1] + len(tokenizer.decode([token], clean_up_tokenization_spaces=False)))
    return ids, ends[1:]


def _check_known(path: Path, largest: int) -> None:
    vocabulary = vocabulary_of(str(path))
    if largest >= vocabulary:
        raise InputError(
            f"the tokenizer in {path} makes token {largest}, its model knows {vocabulary} tokens"
        )
