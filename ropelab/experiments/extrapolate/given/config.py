"""The config of `extrapolate --hf MODEL`: what is asked of a model that was trained elsewhere.

Nothing is trained, so nothing of training can be set; lengths and geometry are the model's own.
"""

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, get_args

from pydantic import ByteSize, Field, model_validator

from ropelab.models.tasks.config import On, TestLen
from ropelab.runs.config import SPELLINGS, AsList, Config, Count, Names, Naturals, read_number

if TYPE_CHECKING:
    from ropelab.math.frequencies import Geometry
    from ropelab.models.methods.method import Method
    from ropelab.models.released.facts import ModelFacts
    from ropelab.models.tasks.given import Given
    from ropelab.models.tasks.tokens import TokenText

ASKED = "My model was trained at {} tokens: what happens at {} with PI, NTK, YaRN?"
TaskName = Literal["text", "copy", "passkey", "multiquery"]
Format = Literal["auto", "float32", "bfloat16", "float16"]
DEFAULT_METHODS = ("unscaled", "pi", "ntk", "ntk_by_parts", "yarn", "llama3")
SHORTEST = 64
"""Below this many tokens rotary geometry and the grids of positions degenerate."""
SPELLED = {theirs: ours for ours, theirs in SPELLINGS.items()}
TRAINING = ("preset", "steps", "arms", "seeds", "finetune_steps", "finetune_len", "search")
"""Fields of the same command that only models trained here have."""
FOLLOWS = {"train_len": "train_len", "base": "base", "head_dim": "rotary_dim"}
"""Fields that a model given answers itself, and where its facts have them."""
MOST_DEPTHS = 16
REACH = 2
"""Times the trained length: what is tested where no length is given."""


class GivenConfig(Config):
    """Which model is asked, up to which length, and what."""

    hf: str = Field(
        description="a model of one's own to ask instead: the folder of a Hugging Face causal "
        "language model, or its id in the local cache of the Hub"
    )
    test_len: TestLen = Field(description="by default twice its trained length")
    methods: Names = Field(
        DEFAULT_METHODS,
        description="none that trains or searches; as_shipped, the model as its configuration "
        "has it, is always measured too",
    )
    tasks: Annotated[tuple[TaskName, ...], AsList] = Field(
        ("text", "copy", "passkey"),
        description="text; copy (tokens among tokens); passkey (a number hidden in text); "
        "multiquery (a number at every depth, all asked for)",
    )
    documents: Count = Field(10, description="as many")
    sequences: Count = Field(2, description="as many, and rows in which keys are hidden")
    depths: Naturals = Field(
        (0, 25, 50, 75, 100), description="where a pass key is hidden, in percent of the text"
    )
    corpus: str = Field(
        "",
        description="all of it",
    )
    packed: bool = Field(
        False, description="put documents one after another and cut them, instead of their heads"
    )
    bos: Literal["auto", "yes", "no"] = Field(
        "auto",
        description="begin with the beginning-of-sequence token; auto: as the tokenizer does",
    )
    device: On = "auto"
    dtype: Format = Field(
        "auto", description="of the model; auto: its checkpoint's; angles in float32 in any"
    )
    device_map: Literal["none", "auto"] = Field(
        "none", exclude=True, description="auto: spread a model given by --hf over all devices"
    )
    limit_memory: ByteSize | None = Field(
        None, gt=0, exclude=True,
        description="refuse what needs more memory, such as 12GB or 800MiB (only with --hf)",
    )  # fmt: skip

    @model_validator(mode="before")
    @classmethod
    def _of_the_model(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Refuse what the model answers itself or what only training has; fill in the length."""
        from ropelab.models.released.facts import facts_of

        hf = values.get("hf")
        if not isinstance(hf, str):
            return {"test_len": SHORTEST, **values}  # what is wrong is hf and nothing else
        facts = facts_of(hf)
        ours = {SPELLED.get(name, name): value for name, value in values.items()}
        for name in list(ours):
            if name in FOLLOWS:
                _agree(name, ours.pop(name), getattr(facts, FOLLOWS[name]))
            elif name in TRAINING:
                raise ValueError(f"{name} is about training, and what hf names is not trained")
        if ours.get("dtype", "auto") == "auto":
            ours["dtype"] = _checkpoint_dtype(hf)
        return {"test_len": REACH * facts.train_len, **ours}

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        trained = self.facts.train_len
        if trained < SHORTEST:
            raise ValueError(f"the model has {trained} tokens, at least {SHORTEST} are needed")
        if self.test_len < trained:
            raise ValueError(
                f"test_len must be at least the model's trained length ({trained}), "
                f"got {self.test_len}"
            )
        if not self.tasks:
            raise ValueError("tasks must name at least one")
        if max(self.depths) > 100 or len({*self.depths}) > MOST_DEPTHS:
            raise ValueError(f"depths are percents, 0 to 100, at most {MOST_DEPTHS} of them")
        for method in self.parsed_methods():
            if not _reads_as_trained(method):
                raise ValueError(
                    f"a model given by hf cannot be read by {method.label}, which trains or "
                    "searches"
                )
        return self

    def changed(self) -> dict[str, Any]:
        """The fields whose values differ from the defaults, a length that was filled in too."""
        fields = type(self).model_fields
        kept = self.model_dump(mode="json")
        return {n: v for n, v in kept.items() if getattr(self, n) != fields[n].default}

    def asks(self, question: str) -> str:
        """With the lengths of the model and of this config."""
        return ASKED.format(self.facts.train_len, self.test_len)

    def inputs(self) -> dict[str, str]:
        """Fingerprints of the text and of the model; InputError if one cannot be used."""
        return {"corpus": self.text().fingerprint, "hf": self.given().fingerprint}

    @cached_property
    def facts(self) -> "ModelFacts":
        """What the model's configuration says."""
        from ropelab.models.released.facts import facts_of

        return facts_of(self.hf)

    def geometry(self) -> "Geometry":
        """What the model was trained with."""
        from ropelab.math.frequencies import Geometry

        return Geometry(self.facts.rotary_dim, self.facts.base, self.facts.train_len)

    def parsed_methods(self) -> "tuple[Method, ...]":
        """The methods, each once, in the order given."""
        from ropelab.models.methods.registry import parse_methods

        return parse_methods(self.methods, self.geometry(), self.test_len)

    def given(self) -> "Given":
        """The model as its files are now."""
        from ropelab.models.tasks.given import Given

        spread = None if self.device_map == "none" else self.device_map
        return Given.at(self.hf, self.dtype, self.device, spread)

    def text(self) -> "TokenText":
        """The corpus in the model's tokens."""
        from ropelab.models.tasks.tokens import TokenText

        return TokenText.of(self.corpus, self.hf, self.bos, self.packed)


def _reads_as_trained(method: "Method") -> bool:
    """Whether a method needs neither training nor a search."""
    from ropelab.models.methods.method import Reading

    return isinstance(method, Reading) and not method.recalibration


def _agree(name: str, value: object, fact: float) -> None:
    if read_number(value) != fact:
        raise ValueError(f"{name} follows from the model ({fact:g}), leave it out")


def _checkpoint_dtype(hf: str) -> str:
    """The number format that the configuration names, `auto` where it names none of ours."""
    from ropelab.models.released.facts import configuration

    named = str(getattr(configuration(Path(hf)), "dtype", None)).removeprefix("torch.")
    return named if named in get_args(Format) else "auto"
