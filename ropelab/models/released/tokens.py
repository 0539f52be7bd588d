"""The tokenizer of a model, and how it begins a text."""

from functools import lru_cache
from pathlib import Path
from typing import Any

from ropelab.errors import InputError
from ropelab.models.released.folder import checked_config, located, stamp
from ropelab.models.released.library import import_transformers, refusing


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
