"""A released model beyond its trained length, unmodified and under each method.

A method, such as YaRN, changes frequencies or attention; nothing is trained. The trained
length and the sizes of heads are read from the model's folder.
"""

from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, get_args

from pydantic import BeforeValidator, ByteSize, Field, model_validator

from ropelab.models.tasks import config
from ropelab.runs.config import Config, Count, EvaluationField, ModelField, Names
from ropelab.runs.errors import require
from ropelab.runs.sentences import join_names, write_count
from ropelab.runs.spelling import read_format, read_number

if TYPE_CHECKING:
    from ropelab.models.methods.method import Method
    from ropelab.models.released.facts import ModelFacts
    from ropelab.models.released.model import ModelRef
    from ropelab.models.tasks.tokens import TokenText
    from ropelab.runs.tables import Tables

# The module with the functions of the experiment, imported when one of them is called.
FUNCTIONS_MODULE = "ropelab.experiments.evaluate.results"
CANNOT_SHOW = (
    "How other models behave: a released model speaks for itself alone. And what"
    " fine-tuning under a method would bring: nothing is trained."
)
VERSION = 7
Format = Literal["auto", "float32", "bfloat16", "float16"]
DEFAULT_METHODS = ("unscaled", "pi", "ntk", "ntk_by_parts", "yarn", "llama3")


class EvaluateConfig(Config):
    """The model, the longest context, and the tasks."""

    common_options: ClassVar[tuple[str, ...]] = (
        "context",
        "methods",
        "tasks",
        "corpus",
    )

    argument: ClassVar[str] = "model"

    model: str = Field(
        description=(
            "folder of a Hugging Face causal language model, or its id in the local"
            " cache of the Hub"
        )
    )
    context: Count = Field(description=config.TEXTS["evaluate"]["context"])
    methods: Names = Field(
        DEFAULT_METHODS, description=config.TEXTS["evaluate"]["methods"]
    )
    tasks: config.Tasks = ("text", "copy", "passkey")
    factor: config.Factor = None
    casts: config.Casts = Field((), exclude_if=lambda names: not names)
    cache: config.KeyFormats = Field((), exclude_if=lambda names: not names)
    against: config.Against = Field("", exclude_if=lambda name: not name)
    offsets: config.Offsets = Field((0,), exclude_if=lambda firsts: firsts == (0,))
    documents: EvaluationField[Count] = Field(
        10, description="documents the text is measured on"
    )
    sequences: EvaluationField[Count] = Field(
        4, description=config.TEXTS["about"]["sequences"]
    )
    depths: config.Depths = (0, 25, 50, 75, 100)
    corpus: config.CorpusPath = ""
    packed: EvaluationField[bool] = Field(
        False, description="join documents and cut, instead of taking their heads"
    )
    bos: EvaluationField[Literal["auto", "yes", "no"]] = Field(
        "auto",
        description=(
            "begin with the beginning-of-sequence token; auto: as the tokenizer does"
        ),
    )
    device: config.DeviceField = "auto"
    dtype: ModelField[Annotated[Format, BeforeValidator(read_format)]] = Field(
        "auto", description="of weights; auto: as stored; angles are in float32"
    )
    device_map: ModelField[Literal["none", "auto"]] = Field(
        "none", exclude=True, description="auto: spread the model over all devices"
    )
    limit_memory: ModelField[ByteSize | None] = Field(
        None,
        gt=0,
        exclude=True,
        description="refuse what needs more memory, as 12GB or 800MiB",
    )

    @model_validator(mode="before")
    @classmethod
    def _fill_from_model(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Fill in the context and the number format, from the model, and the methods."""
        model = values.get("model")
        if not model:
            raise ValueError(
                "name a model: its folder, or its id in the local cache of the Hub"
            )
        if not isinstance(model, str):
            # The check of the field `model` reports this later. The context is filled in,
            # so that no second error is about a missing context.
            return {"context": config.SHORTEST_TRAINED, **values}
        require("transformers")
        from ropelab.models.released.facts import read_facts
        from ropelab.models.released.loading import read_checkpoint_dtype

        trained_len = read_facts(model).train_len
        # Roundings are compared inside the trained length, methods beyond it.
        has_roundings = bool(values.get("casts") or values.get("cache"))
        default_context = 2 * trained_len
        if has_roundings:
            default_context = trained_len
        filled = {"context": default_context, **values}
        # A context below the trained length has no use for methods: their factors would
        # be below 1.
        is_short = False
        # If the context is not a number, the check of its own field reports this later.
        with suppress(TypeError, ValueError):
            context = read_number(filled["context"])
            is_short = context < trained_len  # type: ignore[operator]
        if has_roundings or is_short:
            filled.setdefault("methods", ())

        if filled.get("dtype", "auto") == "auto":
            # The model's configuration may name no format, or one that is not offered
            # here.
            stored_format = read_checkpoint_dtype(Path(model))
            if stored_format in get_args(Format):
                filled["dtype"] = stored_format
            else:
                filled["dtype"] = "auto"
        return filled

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        from ropelab.models.methods.method import FixedMethod

        # These raise ValueError; the result of the first is not needed here.
        config.list_roundings(self)
        config.check_against(self, self.against)

        shortest = config.SHORTEST_TRAINED
        if self.train_len < shortest:
            raise ValueError(
                f"the model has {self.train_len} tokens, at least {shortest} needed"
            )
        if self.context < shortest:
            raise ValueError(f"context must be at least {shortest}, got {self.context}")

        config.check_depths(self.depths)
        for method in self.parsed_methods():
            if not isinstance(method, FixedMethod) or method.recalibration:
                raise ValueError(
                    f"a released model cannot be evaluated under {method.label}, which"
                    " trains or searches"
                )
        return self

    def changed_fields(self) -> dict[str, Any]:
        """Return the fields whose values differ from the defaults. A length that was
        filled in is among them: it has no default.
        """
        fields = type(self).model_fields
        stored_values = self.model_dump(mode="json")

        def is_changed(name: str) -> bool:
            return bool(getattr(self, name) != fields[name].default)

        return {
            name: value for name, value in stored_values.items() if is_changed(name)
        }

    def adapt_question(self, question: str) -> str:
        """Return the question with the lengths of the model and of this config."""
        return self._ask_about(self.train_len)

    def ask_again(self, question: str, tables: "Tables") -> str:
        """Return the question with the model's length from a table of the run."""
        return self._ask_about(int(tables["model"]["train_len_tokens"].iloc[0]))

    def _ask_about(self, train_len: int) -> str:
        has_roundings = bool(self.casts or self.cache)
        return config.ask_what_happens(train_len, self.context, has_roundings)

    @property
    def scope(self) -> str:
        """The conditions of the answer, in words."""
        scope = f"{Path(self.model).name}, up to {self.context} tokens"
        if "text" in self.tasks:
            scope += f", {write_count(self.documents, 'document')}"
        return scope

    @property
    def interval_over(self) -> str:
        return join_names(config.count_texts(self))

    def list_idle_fields(self) -> dict[str, str]:
        idle_fields = config.list_idle_fields(self)
        # Tokens are drawn for the other tasks.
        has_text_task = not set(self.tasks).isdisjoint(config.TASKS_WITH_TEXT)
        # Two casts are compared on documents, whatever the tasks.
        reads_text = has_text_task or bool(self.against)
        if not reads_text:
            purpose = f"the tasks {', '.join(config.TASKS_WITH_TEXT)}"
            idle_fields |= {"corpus": purpose, "packed": purpose}
        elif self.corpus and not Path(self.corpus).is_dir():
            # A single file is cut into pieces anyway.
            idle_fields["packed"] = "folders of documents"
        return idle_fields

    def inputs(self) -> dict[str, str]:
        """Return fingerprints of the text and of the model.

        InputError: the text or the model cannot be used.
        """
        fingerprints = {
            "corpus": self.text.fingerprint,
            "model": self.reference().fingerprint,
        }
        # A corpus of the user is also identified by the names of its documents.
        if self.corpus:
            fingerprints["documents"] = self.text.names
        return fingerprints

    @cached_property
    def facts(self) -> "ModelFacts":
        from ropelab.models.released.facts import read_facts

        return read_facts(self.model)

    @property
    def train_len(self) -> int:
        return self.facts.train_len

    @property
    def grid_len(self) -> int:
        """The length from which the tested lengths and distances follow, as if the model
        had been trained at that length.
        """
        if self.context >= self.train_len:
            return self.train_len
        # Roundings are compared at the end of the context. Otherwise the lengths are
        # chosen as for a model that was trained at half of the context.
        if config.list_roundings(self):
            return self.context
        return self.context // 2

    @property
    def longest(self) -> int:
        """The longest context that is tested."""
        return self.context

    @property
    def window(self) -> int:
        """The tokens of the sliding window."""
        # A model may claim a longer context than it was trained at. If the tested context
        # is longer still, the window has the claimed length.
        claimed = self.facts.claimed_len
        return claimed if claimed < self.context else self.train_len

    def parsed_methods(self) -> "tuple[Method, ...]":
        from ropelab.models.methods.registry import parse_methods

        geometry = self.facts.geometry()
        return parse_methods(self.methods, geometry, self.context, self.factor)

    def reference(self) -> "ModelRef":
        """Return what a cell needs to load the model."""
        from ropelab.models.released.folder import hash_model_files
        from ropelab.models.released.model import ModelRef

        device_map = None if self.device_map == "none" else self.device_map
        fingerprint = hash_model_files(Path(self.model))
        return ModelRef(self.model, fingerprint, self.dtype, self.device, device_map)

    @cached_property
    def text(self) -> "TokenText":
        from ropelab.models.tasks.tokens import TokenText

        return TokenText.of(self.corpus, self.model, self.bos, self.packed)
