"""The record of one runtime at one version."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from ropelab.readers.families import RELEASE
from ropelab.readers.spec import RopeSpec
from ropelab.readers.trace import Trace

# A cast chain says which number format each step of the computation is rounded to. This
# is the chain of transformers, vLLM and TGI: angles in float32, and cos and sin in the
# format of the model.
TRANSFORMERS_CHAIN = "transformers_llama"


@dataclass(frozen=True)
class Runtime:
    """One runtime at one version, with its reader and the evidence for this reader."""

    name: str
    version: str
    # How our reader was checked. run: it was compared with numbers that this version
    # computed. parts: it was compared with the output of the runtime's converter and
    # with the rotations of its kernel. read: only the source was read; the module of
    # the reader names the source.
    proof: Literal["run", "parts", "read"]
    # The reader. It returns the rotation of each layer type, by the name of the type.
    read: Callable[[Trace], dict[str, RopeSpec]]
    # The model types for which our reader was compared.
    compared_types: frozenset[str]
    # The kinds of documents that the runtime takes, such as config and gguf.
    document_kinds: tuple[str, ...]
    # The name of its cast chain, a preset of `ropelab precision`.
    chain: str = TRANSFORMERS_CHAIN
    # The release of transformers whose classes give what a file leaves out.
    release: str = RELEASE
    # True if the runtime finds the class of a model by a name or by sizes in the file, so
    # that the file needs no model_type.
    needs_no_type: bool = False
    # True if the class of transformers runs where the runtime has none of its own.
    falls_back: bool = False
    # True if transformers loads the file, since the runtime has no classes of its own.
    runs_transformers: bool = False
    # Model types without a configuration class in the runtime. The runtime loads them
    # only if the file names code of its own, under auto_map.
    types_without_class: frozenset[str] = frozenset()

    @property
    def name_of_classes(self) -> str:
        """The name of the runtime whose model classes run: this one, or transformers.

        A release of transformers has the name of a runtime, such as
        `transformers-4.57`.
        """
        if not self.runs_transformers:
            return self.name
        major, minor, *_ = self.release.split(".")
        if major == "4":
            return f"transformers-4.{minor}"
        return "transformers-5"

    def describe_proof(self, model_type: str) -> str:
        """Return in words how far the reader can be trusted for a model type."""
        if not self.compared_types:
            return "read from source, not run"
        if model_type not in self.compared_types:
            return "read from source, not run for this model"
        if self.proof == "parts":
            return "compared with what its converter wrote and its kernel rotated"
        return "compared with what it computed"
