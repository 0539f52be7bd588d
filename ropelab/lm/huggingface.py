"""A local Hugging Face causal language model behind the interface that evaluation uses.

Only what is on disk is read: no downloads, no code from the model's folder. The model's rotary
frequencies are exchanged in place, which every architecture with transformers' rotary modules
takes; an encoding that acts on attention itself it does not take.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ropelab.encoding.base import Encoding
from ropelab.encoding.rope import Rope
from ropelab.errors import InputError

ENDS = 2**20
"""Bytes at either end of each file that go into a fingerprint; weights can be many gigabytes."""


@dataclass(frozen=True)
class Size:
    """What evaluation needs to know of a model's shape."""

    vocabulary: int


class HuggingFaceModel:
    """A causal language model whose rotary frequencies can be exchanged.

    Args:
        path: the folder that `save_pretrained` wrote.
        device: where it computes.
    Raises:
        InputError: transformers is missing, the folder cannot be read, or the architecture has no
            rotary frequencies, several kinds of them, or a head that is more than a matrix.
    """

    def __init__(self, path: Path, device: str = "cpu") -> None:
        transformers = import_transformers()
        try:
            self.lm = transformers.AutoModelForCausalLM.from_pretrained(
                path, local_files_only=True, trust_remote_code=False, dtype=torch.float32
            )
        except (OSError, ValueError, KeyError) as error:
            reason = str(error).splitlines()[0]
            raise InputError(f"cannot load a causal language model from {path}: {reason}") from None
        self.lm.eval().requires_grad_(False).to(device)
        self.head: Any = self.lm.get_output_embeddings()
        self.size = Size(self.head.weight.shape[0])
        self.rotary = _rotary_modules(self.lm, path)
        self._check_head(path)

    def hidden(self, tokens: Int[Tensor, "batch tokens"]) -> Float[Tensor, "batch tokens width"]:
        """What the head turns into logits."""
        return self.lm.base_model(tokens, use_cache=False).last_hidden_state

    @property
    def encoding(self) -> Encoding:
        """The encoding last put in."""
        return self._encoding

    @encoding.setter
    def encoding(self, encoding: Encoding) -> None:
        if not isinstance(encoding, Rope):
            raise InputError(f"{encoding.name} changes attention, which this model does not allow")
        self._encoding = encoding
        for module in self.rotary:
            inv_freq = torch.from_numpy(encoding.plan.inv_freq).to(module.inv_freq)
            module.inv_freq = module.original_inv_freq = inv_freq
            module.attention_scaling = encoding.plan.attention_factor
            # Otherwise transformers would compute its own frequencies for long inputs.
            module.rope_type = "default"

    def _check_head(self, path: Path) -> None:
        """Refuse models that cap or scale logits: their losses would come out wrong."""
        tokens = torch.arange(8, device=self.head.weight.device)[None] % self.size.vocabulary
        with torch.inference_mode():
            ours, theirs = self.head(self.hidden(tokens)), self.lm(tokens).logits
        if not torch.allclose(ours, theirs, rtol=1e-3, atol=1e-3):
            raise InputError(f"{path}: this architecture changes its logits after the head")


def import_transformers() -> Any:
    """transformers, or an error that says how to install it."""
    try:
        import transformers
    except ImportError:
        raise InputError("--hf needs transformers: pip install 'ropelab[hf]'") from None
    return transformers


def _rotary_modules(model: nn.Module, path: Path) -> list[Any]:
    """The modules that hold rotary frequencies, all of one kind."""
    found = [m for m in model.modules() if hasattr(m, "inv_freq") and hasattr(m, "rope_type")]
    if not found:
        raise InputError(f"{path}: this architecture has no rotary frequencies to exchange")
    if any(m.inv_freq.shape != found[0].inv_freq.shape for m in found):
        raise InputError(f"{path}: this architecture has rotary frequencies of several kinds")
    return found


def tokenized(
    path: Path, texts: tuple[bytes, ...], length: int, documents: int
) -> tuple[Int[Tensor, "documents length"], Float[Tensor, "documents"]]:
    """The first `length` tokens of each of `documents` texts, and their mean bytes per token.

    Raises:
        InputError: no tokenizer, or too few texts of that many tokens.
    """
    transformers = import_transformers()
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(
            path, local_files_only=True, trust_remote_code=False
        )
    except (OSError, ValueError) as error:
        raise InputError(f"no tokenizer in {path}: {str(error).splitlines()[0]}") from None
    rows: list[Tensor] = []
    ratios: list[float] = []
    for text in texts:
        ids = tokenizer(text.decode(errors="replace"), add_special_tokens=False)["input_ids"]
        if len(ids) >= length and len(rows) < documents:
            rows.append(torch.tensor(ids[:length]))
            ratios.append(len(tokenizer.decode(ids[:length]).encode()) / length)
    if len(rows) < documents:
        raise InputError(
            f"only {len(rows)} held-out documents have {length} tokens, {documents} are needed; "
            "give longer text (--corpus) or ask for fewer documents"
        )
    return torch.stack(rows), torch.tensor(ratios, dtype=torch.float64)


def fingerprint_of(path: Path) -> str:
    """A hash of names, sizes, beginnings and ends of the files of a model."""
    digest = hashlib.sha256()
    for file in sorted(p for p in path.iterdir() if p.is_file()):
        size = file.stat().st_size
        digest.update(f"{file.name} {size}".encode())
        with file.open("rb") as content:
            digest.update(content.read(ENDS))
            content.seek(max(0, size - ENDS))
            digest.update(content.read())
    return digest.hexdigest()
