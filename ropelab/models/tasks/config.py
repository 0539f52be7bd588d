"""Fields and checks that the configs of experiments on models share, and their corpus.

A config is a frozen pydantic model with a field for each option of a command
(`ropelab.runs.config`). Nothing heavy is imported here, so that help is quick.
"""

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Protocol, Self

from pydantic import AfterValidator, Field, model_validator

from ropelab.runs.config import (
    AsLengths,
    Config,
    Count,
    Device,
    Dtype,
    EvaluationField,
    EvenCount,
    ModelField,
    Names,
    Natural,
    Naturals,
    NonEmptyTuple,
    Positive,
)
from ropelab.runs.errors import InputError, make_name_error
from ropelab.runs.files import read_table_beside
from ropelab.runs.own import find_own
from ropelab.runs.sentences import join_names, write_count

if TYPE_CHECKING:
    from ropelab.math.numerics.keys import Rounding
    from ropelab.models.lm.corpus import CorpusRef
    from ropelab.models.tasks.tokens import Text

TrainLen = Annotated[
    ModelField[Count], Field(description="length the models are trained at, in tokens")
]
TestLen = Annotated[Count, Field(description="length they are measured at, in tokens")]
# torch takes the lowest 32 bits of a seed, and the encoding of a model is drawn from the
# upper half of them (`RANDOM_STREAM`). Larger seeds would draw the same weights as others.
LARGEST_SEED = 2**31 - 1
TrainingSeed = Annotated[Natural, Field(le=LARGEST_SEED)]
Seeds = Annotated[
    ModelField[Annotated[tuple[TrainingSeed, ...], AsLengths, Field(min_length=1)]],
    Field(description="training seeds; each is a model of its own"),
]
Documents = Annotated[
    EvaluationField[Count],
    Field(description="held-out documents the text is measured on"),
]
Layers = Annotated[ModelField[Count], Field(description="layers of the model")]
Width = Annotated[ModelField[EvenCount], Field(description="width of the model")]
Heads = Annotated[ModelField[Count], Field(description="heads of a layer")]
HeadDim = Annotated[ModelField[EvenCount], Field(description="width of one head")]
RotatedHeadDim = Annotated[
    ModelField[EvenCount], Field(description="width of one head, all of it rotated")
]
Steps = Annotated[ModelField[Count], Field(description="training steps")]
TokensPerStep = Annotated[
    ModelField[Count], Field(description="tokens in one training step")
]
FirstWindow = Annotated[
    ModelField[Count],
    Field(description="tokens in first windows; doubled to train_len"),
]
# The factor of all methods that have one and whose text names none; None: each method
# computes its own.
Factor = Annotated[
    EvaluationField[Positive | None],
    Field(
        exclude_if=lambda factor: factor is None,
        description=(
            "factor of all methods that have one, instead of what reaches the tested"
            " length; in a [grid] it is the axis of the figure"
        ),
    ),
]
CorpusPath = Annotated[
    EvaluationField[str],
    Field(
        description=(
            "text file or folder to use; empty: the standard library of this Python"
        )
    ),
]
DeviceField = Annotated[
    ModelField[Device], Field(description="where tensors are computed")
]
DtypeField = Annotated[
    ModelField[Dtype],
    Field(
        description=(
            "number format of training; auto: bfloat16 where the processor has matrix "
            "units for it, else float32"
        )
    ),
]
# The words of tasks and options in answers and help.
TEXTS = read_table_beside(__file__)
# What a model does when it solves a task, in words, by the name of the task. The names
# are those of all tasks that come with ropelab.
DOES = TEXTS["does"]


def _check_task(name: str) -> str:
    """Return a name that is a task, of ropelab or of the user; else raise InputError."""
    if name in DOES:
        return name
    function = find_own("tasks", name)
    if function is None:
        raise make_name_error("task", name, DOES)
    if not callable(function) or function.__name__ in DOES:
        raise InputError(
            f"{name} must be a function with a name of its own (docs/own.md)"
        )
    return name


def _check_distinct(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return names of tasks; raise InputError if two would have the same title."""
    # The title of a task of the user is the name of its function.
    titles = [getattr(find_own("tasks", name), "__qualname__", name) for name in names]
    for title in titles:
        if titles.count(title) > 1:
            raise InputError(f"two tasks are called {title}")
    return names


# The name of a task, or a reference to a task of the user.
Task = Annotated[str, AfterValidator(_check_task)]
Tasks = Annotated[
    NonEmptyTuple[Task],
    AfterValidator(_check_distinct),
    Field(description=TEXTS["about"]["tasks"]),
]
Depths = Annotated[
    EvaluationField[Naturals],
    Field(description="depths of a pass key in its text, in percent"),
]
# The tasks that ask for a value by its key, or by its place in a list. The keys and lists
# stand at depths of a text.
TASKS_WITH_KEYS = ("passkey", "multiquery", "indexing", "keyed")
# The tasks that read the corpus. Of the others, also those of the user, all tokens are
# drawn.
TASKS_WITH_TEXT = ("text", "copy_in_text", *TASKS_WITH_KEYS)
# The largest number of depths. Each key needs one of sixteen names
# (ropelab/models/tasks/needles.py).
MOST_DEPTHS = 16
# The least trained length, in tokens. With fewer tokens the frequencies and the grids
# of positions degenerate. The windows of the first training steps are as long, too.
SHORTEST_TRAINED = 64


def ask_what_happens(trained: int, tested: int, has_roundings: bool = False) -> str:
    """Write the question of an experiment that trains and tests at these lengths.

    Methods are named if the tested length is above the trained length. A run that
    compares roundings asks what they cost.
    """
    if has_roundings:
        return (
            f"My model was trained at {trained} tokens: what do roundings cost it at"
            f" {tested}?"
        )
    methods = ""
    if tested > trained:
        methods = " with PI, NTK, YaRN"
    return (
        f"My model was trained at {trained} tokens: what happens at {tested}{methods}?"
    )


Casts = Annotated[Names, Field(description=TEXTS["about"]["casts"])]
KeyFormats = Annotated[Names, Field(description=TEXTS["about"]["cache"])]
Against = Annotated[str, Field(description=TEXTS["about"]["against"])]
Offsets = Annotated[
    EvaluationField[Naturals],
    Field(description="first positions of the text under each cast"),
]


class RoundingConfig(Protocol):
    """A config of an experiment that evaluates casts and formats of keys.

    A cast rounds stages of RoPE to a number format. A format of keys is the format in
    which a cache stores keys. Both are a `Rounding` (ropelab.math.numerics.keys).
    """

    @property
    def casts(self) -> tuple[str, ...]: ...
    @property
    def cache(self) -> tuple[str, ...]: ...
    @property
    def offsets(self) -> tuple[int, ...]: ...


def list_roundings(config: RoundingConfig, head_dim: int = 0) -> "list[Rounding]":
    """Return the casts of a config at each of its offsets, then its formats of keys.

    InputError: an unknown name, or a format that heads of the width `head_dim` do not
    fit. If `head_dim` is 0, the width is not known yet and not checked.
    """
    from ropelab.math.numerics.keys import Rounding, parse_keys, parse_rounding

    casts = [parse_rounding(text) for text in config.casts]
    keys = [parse_keys(text) for text in config.cache]
    if head_dim:
        for fmt in keys:
            fmt.check(head_dim)

    roundings = []
    for cast in casts:
        roundings += [cast._replace(first=offset) for offset in config.offsets]
    roundings += [Rounding(fmt.label, keys=fmt) for fmt in keys]
    # A rounding that was typed twice, perhaps in different words, is returned once.
    return list(dict.fromkeys(roundings))


def read_against(text: str) -> "Rounding":
    """Read the option `against`: the rounding with which all other roundings are
    compared.

    InputError: the text is neither a cast nor a format of keys.
    """
    from ropelab.math.numerics.keys import (
        Rounding,
        is_format_of_keys,
        parse_keys,
        parse_rounding,
    )

    if is_format_of_keys(text):
        fmt = parse_keys(text)
        return Rounding(fmt.label, keys=fmt)
    return parse_rounding(text)


def check_against(config: RoundingConfig, against: str, head_dim: int = 0) -> None:
    """Check the option `against`; an empty text means that it was not given.

    ValueError: there are no roundings to compare. InputError: the name is unknown, or
    heads of the width `head_dim` (0: not known yet) do not fit.
    """
    if not against:
        return
    if not (config.casts or config.cache):
        raise ValueError(
            "against is what casts are compared with: give casts or cache, too"
        )
    keys = read_against(against).keys
    if keys is not None and head_dim:
        keys.check(head_dim)


def check_depths(depths: tuple[int, ...]) -> None:
    """Raise ValueError if depths are not percents, or if there are more than
    MOST_DEPTHS.
    """
    different = set(depths)
    if max(depths) > 100 or len(different) > MOST_DEPTHS:
        raise ValueError(
            f"depths are percents, 0 to 100, at most {MOST_DEPTHS} of them"
        )


class EvaluationConfig(Protocol):
    """A config of an experiment that evaluates models beyond the trained length."""

    @property
    def train_len(self) -> int: ...
    @property
    def grid_len(self) -> int:
        """The length from which buckets, contexts and distances follow (grid.py)."""

    @property
    def longest(self) -> int:
        """The longest length that is tested."""

    @property
    def tasks(self) -> tuple[str, ...]: ...
    @property
    def documents(self) -> int: ...
    @property
    def sequences(self) -> int: ...
    @property
    def text(self) -> "Text": ...


def count_texts(config: EvaluationConfig) -> list[str]:
    """Return in words how many documents and how many contexts the tasks have.

    The task `text` has documents, and all other tasks have contexts.
    """
    texts = []
    if "text" in config.tasks:
        texts.append(write_count(config.documents, "document"))
    if set(config.tasks) != {"text"}:
        texts.append(write_count(config.sequences, "context"))
    return texts


def list_idle_fields(config: EvaluationConfig) -> dict[str, str]:
    """Return the fields of an evaluation that its tasks and casts leave without effect,
    each with what it is for.
    """
    idle_fields = {}
    # Two casts are compared on documents, too.
    if "text" not in config.tasks and not getattr(config, "against", ""):
        idle_fields["documents"] = "the task text"
    if set(config.tasks) == {"text"}:
        idle_fields["sequences"] = "other tasks than text"
    fields = type(config).model_fields  # type: ignore[attr-defined]
    if "depths" in fields and not set(TASKS_WITH_KEYS) & set(config.tasks):
        idle_fields["depths"] = f"the tasks {', '.join(TASKS_WITH_KEYS)}"
    if "offsets" in fields and not getattr(config, "casts", ()):
        idle_fields["offsets"] = "--casts"
    return idle_fields


class TaskConfig(Config):
    """A config of an experiment that trains models and measures them on tasks."""

    # Every subclass defines these fields itself, since help lists fields in the order
    # of their definition. A type checker has to know that every subclass has them.
    if TYPE_CHECKING:
        tasks: tuple[str, ...]
        train_len: int
        test_len: int
        documents: int
        sequences: int
        seeds: tuple[int, ...]
        corpus: str
    # The least trained length, in tokens.
    shortest_train_len: ClassVar[int] = SHORTEST_TRAINED

    @property
    def grid_len(self) -> int:
        return self.train_len

    @property
    def longest(self) -> int:
        return self.test_len

    def list_idle_fields(self) -> dict[str, str]:
        return list_idle_fields(self)

    @property
    def scope(self) -> str:
        """The models that the results are about, in words."""
        seeds = "one training seed"
        if len(self.seeds) != 1:
            seeds = f"{len(self.seeds)} training seeds"
        evaluated = ""
        if self.longest > self.train_len:
            evaluated = f", evaluated up to {self.longest}"
        return f"trained at {self.train_len} tokens{evaluated}, {seeds}"

    @property
    def interval_over(self) -> str:
        counts = count_texts(self)
        if len(self.seeds) > 1:
            counts.insert(0, f"{len(self.seeds)} models")
        return join_names(counts)

    def inputs(self) -> dict[str, str]:
        """Return the fingerprints of the corpus and of the names of its documents, and
        the name of its source if that is known.
        """
        from ropelab.models.lm.corpus import read_source_name

        inputs = {"corpus": self.text.fingerprint}
        if self.corpus:
            source = read_source_name(Path(self.corpus))
            if source:
                inputs["corpus_source"] = source
            inputs["documents"] = self.text.names
        return inputs

    @cached_property
    def text(self) -> "CorpusRef":
        """The corpus, which is read and checked once, for all cells of a run.

        InputError: there is none, or it is too short for these lengths and documents.
        """
        from ropelab.models.lm.corpus import CorpusRef

        length = self.longest + 1
        text = CorpusRef.of(self.corpus, length)
        text.corpus().check(self.train_len + 1, length, self.documents)
        # Documents that were left out are reported last, so that a text that is refused
        # gets no line but the error.
        text.corpus().say_left_out()
        return text

    @model_validator(mode="after")
    def _check_lengths(self) -> Self:
        train_len = self.train_len
        test_len = self.longest
        shortest = self.shortest_train_len
        if train_len < shortest:
            raise ValueError(f"train_len must be at least {shortest}, got {train_len}")
        if test_len < train_len:
            raise ValueError(
                f"test_len must be at least train_len ({train_len}), got {test_len}"
            )
        return self


class ShapedConfig(TaskConfig):
    """A config that also gives the shape of its models, and how long they are
    trained.
    """

    layers: Layers = 2
    width: Width = 128
    heads: Heads = 4
    head_dim: HeadDim = 32
    steps: Steps = 800
    tokens_per_step: TokensPerStep = 2048
    lr_scale: ModelField[Positive] = Field(
        1.0,
        description="factor on both learning rates",
        exclude_if=lambda scale: scale == 1,
    )
    seeds: Seeds = (0,)
    documents: Documents = 50
    corpus: CorpusPath = ""
    # `device` comes before `dtype`, since `auto` for the dtype depends on the device.
    device: DeviceField = "auto"
    dtype: DtypeField = "auto"
