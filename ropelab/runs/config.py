"""The config of a run: one validated, frozen value, made from flags, TOML or Python.

An experiment's config is a subclass of `Config` with one field per flag. Flags, TOML
files and Python keywords all pass through `build`, which reports what is wrong in one
line.
"""

import re
import shlex
import sys
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    WrapValidator,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from ropelab.runs.errors import InputError, cut_text, make_name_error
from ropelab.runs.files import (
    check_name,
    explain_content,
    is_deep,
    read_regular,
    read_table_beside,
)
from ropelab.runs.machine import DtypeName, resolve_device, resolve_dtype
from ropelab.runs.own import spell_value
from ropelab.runs.spelling import (
    ROTARY_SHARE,
    FieldGroup,
    list_spellings,
    read_format,
    read_formats,
    read_lengths,
    read_list,
    read_number,
    read_plain_number,
    write_command,
)

if TYPE_CHECKING:
    from ropelab.runs.tables import Tables

# The most bytes of a config file. A pasted table of factors is far smaller.
LARGEST_FILE = 2**20
# The most values of one list, as many as the runs of one file (ropelab/sweeps/cases.py).
MOST_VALUES = 1000
# The most combinations of seeds with the values of another list. Each combination is
# several measurements, and all measurements are listed before the first one begins.
MOST_PAIRS = 10_000
# The suffixes of model files, which are often given in the place of a config of runs.
MODEL_SUFFIXES = (".json", ".gguf", ".safetensors")


def _check_even(value: int) -> int:
    if value % 2:
        raise ValueError("must be even: rotary features come in pairs")
    return value


def _split_distinct(split: Callable[[object], object]) -> WrapValidator:
    """Return a validator of a list that splits it by `split` and drops repeated
    values.
    """

    def read_values(value: object, read: Callable[[object], Any]) -> tuple[Any, ...]:
        parts = split(value)
        if isinstance(parts, tuple) and len(parts) > MOST_VALUES:
            raise ValueError(
                f"must have at most {MOST_VALUES} values, not {len(parts)}"
            )
        return tuple(dict.fromkeys(read(parts)))

    return WrapValidator(read_values)


def _resolved_dtype(dtype: DtypeName, info: ValidationInfo) -> DtypeName:
    if "device" not in info.data:
        return dtype
    return resolve_dtype(dtype, info.data["device"])


# The largest whole number that a config may have. Positions are computed in float64,
# which holds all whole numbers up to this number.
LARGEST = 2**53
# The most features of a head or a model. The widest heads in use have a few hundred.
WIDEST = 2**20
Count = Annotated[int, BeforeValidator(read_number), Field(ge=1, le=LARGEST)]
EvenCount = Annotated[
    int,
    BeforeValidator(read_number),
    Field(ge=2, le=WIDEST),
    AfterValidator(_check_even),
]
Natural = Annotated[int, BeforeValidator(read_number), Field(ge=0, le=LARGEST)]
Real = Annotated[float, BeforeValidator(read_plain_number), Field(allow_inf_nan=False)]
Positive = Annotated[
    float, BeforeValidator(read_number), Field(gt=0, allow_inf_nan=False)
]
Base = Annotated[
    float, BeforeValidator(read_plain_number), Field(gt=1, allow_inf_nan=False)
]
T = TypeVar("T")
# AsSequence, AsList and AsLengths mark a tuple field that may be typed as `a,b`.
# AsSequence keeps repeated values. AsList and AsLengths drop them, since a repeated value
# would count one result several times.
AsSequence = BeforeValidator(read_list)
AsList = _split_distinct(read_list)
AsLengths = _split_distinct(read_lengths)
Names = Annotated[tuple[str, ...], AsList]
# Two names of one number format are one value, and are kept once.
Formats = Annotated[tuple[str, ...], _split_distinct(read_formats)]
# Lists of at least one value.
NonEmptyTuple = Annotated[tuple[T, ...], AsList, Field(min_length=1)]
Counts = Annotated[tuple[Count, ...], AsLengths, Field(min_length=1)]
Naturals = Annotated[tuple[Natural, ...], AsLengths, Field(min_length=1)]
Bases = Annotated[tuple[Base, ...], AsLengths, Field(min_length=1)]
Device = Annotated[Literal["auto", "cpu", "cuda"], AfterValidator(resolve_device)]
# The number format of training and evaluation. `auto` is resolved by the field `device`,
# so that a config lists `device` before the field of this type.
Dtype = Annotated[
    DtypeName, BeforeValidator(read_format), AfterValidator(_resolved_dtype)
]
# Patterns of pydantic's messages, each with the plain words that replace it.
WORDS: dict[str, dict[str, str]] = read_table_beside(__file__)


def respell(
    config_class: "type[Config]",
    values: Mapping[str, Any],
    write_field: Callable[[str], str] = str,
) -> dict[str, Any]:
    """Return values under our names of the fields; the user may have given them under
    Hugging Face's names.

    InputError: a field is given under both names. `write_field` writes the name of a
    field as the user typed it (`head_dim` or `--head-dim`).
    """
    respelled = dict(values)
    for ours, theirs in list_spellings(config_class.model_fields).items():
        if theirs not in respelled:
            continue
        if ours in respelled:
            both = f"{write_field(ours)} and {write_field(theirs)}"
            raise InputError(f"{both} are the same; give one")
        respelled[ours] = respelled.pop(theirs)

    if ROTARY_SHARE in respelled and respelled.get("rotary_dim") is not None:
        both = f"{write_field('rotary_dim')} and {write_field(ROTARY_SHARE)}"
        raise InputError(f"{both} are the same; give one")
    return respelled


# Marks of the group of options in which help lists a field.
ModelField = Annotated[T, FieldGroup.MODEL]
EvaluationField = Annotated[T, FieldGroup.EVALUATION]


def group_of(info: FieldInfo) -> FieldGroup:
    """Return the group of a field; a field without a mark is in the first group."""
    for mark in info.metadata:
        if isinstance(mark, FieldGroup):
            return mark
    return FieldGroup.ASKED


class Config(BaseModel):
    """Base of every experiment's config: frozen, complete, and without unknown keys."""

    # The field that the command takes without a flag; empty if there is none.
    argument: ClassVar[str] = ""
    # A second field that the command takes without a flag; empty if there is none.
    bare: ClassVar[str] = ""
    # The word that stands for these fields in the help of the command.
    argument_word: ClassVar[str] = "MODEL"
    # The fields whose options `--help` lists first, under the title "Most used".
    common_options: ClassVar[tuple[str, ...]] = ()

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    @model_validator(mode="before")
    @classmethod
    def _read_share_of_head(cls, values: Any) -> Any:
        """Replace partial_rotary_factor by the rotary_dim that transformers computes
        from it.
        """
        if not isinstance(values, dict) or ROTARY_SHARE not in values:
            return values
        other_values = dict(values)
        given_share = other_values.pop(ROTARY_SHARE)
        given_dim = other_values.get("head_dim", cls.model_fields["head_dim"].default)

        try:
            share = read_number(given_share)
            head_dim = read_number(given_dim)
        except ValueError as error:
            raise ValueError(f"{ROTARY_SHARE} {error}, got {given_share!r}") from None
        problem = (
            f"{ROTARY_SHARE} must be a number above 0 and up to 1, got {given_share!r}"
        )
        if not isinstance(share, int | float) or not isinstance(head_dim, int):
            raise ValueError(problem)
        if not 0 < share <= 1:
            raise ValueError(problem)
        return {**other_values, "rotary_dim": int(share * head_dim)}

    @model_validator(mode="after")
    def _check_combinations(self) -> Self:
        # Each seed is trained, or measured, with each value of another list. The longest
        # list decides how many combinations there are.
        lists = {name: value for name, value in self if isinstance(value, tuple)}
        seeds = len(lists.pop("seeds", ()))
        longest = max(lists, key=lambda name: len(lists[name]), default="")
        count = seeds * len(lists.get(longest, ()))
        if count > MOST_PAIRS:
            raise ValueError(
                f"seeds and {longest} ask for {count} combinations; at most"
                f" {MOST_PAIRS} are allowed in a run"
            )
        return self

    def adapt_question(self, question: str) -> str:
        """Return the experiment's question as this config asks it."""
        return question

    def ask_again(self, question: str, tables: "Tables") -> str:
        """Return the question of a stored run with these tables.

        What a field names, such as a folder with a model, is not read.
        """
        return self.adapt_question(question)

    @property
    def scope(self) -> str:
        """The conditions under which the answer holds. They are written at the end of
        the answer's first sentence. Empty if the answer itself names its conditions.

        The conditions follow only from the fields, so that they are also known for a
        stored run.
        """
        return ""

    @property
    def interval_over(self) -> str:
        """What the intervals in the answer are over: models, or texts, with their
        numbers. Empty if an answer has no intervals, or says itself what they are.
        """
        return ""

    def inputs(self) -> dict[str, str]:
        """Return fingerprints of all that the run reads besides its config, such as a
        corpus.
        """
        return {}

    def list_read_experiments(self) -> tuple[str, ...]:
        """Return the experiments whose stored runs this experiment reads."""
        return ()

    def list_required_runs(self) -> tuple[tuple[str, dict[str, Any]], ...]:
        """Return the runs to make before this run: (experiment, values)."""
        return ()

    def list_idle_fields(self) -> dict[str, str]:
        """Return the fields on which no number of this run depends, each with what it
        is for, which this run leaves out.
        """
        return {}

    def list_idle_choices(self) -> dict[str, str]:
        """Return the idle fields that were given another value than their default."""
        choices = {}
        for name, purpose in self.list_idle_fields().items():
            default = type(self).model_fields[name].default
            is_given = name in self.model_fields_set
            if is_given and getattr(self, name) != default:
                choices[name] = purpose
        return choices

    def changed_fields(self) -> dict[str, Any]:
        """Return the fields that differ from the defaults or, if a model is named, from
        the values of that model.
        """
        model = getattr(self, "model", "")
        named = {"model": model} if model else {}
        default = type(self)(**named).model_dump(mode="json")
        changes = {}
        for name, value in self.model_dump(mode="json").items():
            # None cannot be typed. A field is None if another field was given instead.
            if value is None or value == default.get(name):
                continue
            changes[name] = value
        return named | changes

    def command(self, experiment: str) -> str:
        """Return the command that makes the run of this config again, quoted for a
        shell.
        """
        values = self.changed_fields()
        given_fields = self.model_fields_set
        if not self._follows_from(values):
            # A field that was given changes the default of another field. So all fields
            # that were given are typed, also fields that equal their usual default.
            dumped = self.model_dump(mode="json", include=given_fields)
            for name, value in dumped.items():
                if value not in (None, "", []):
                    values[name] = value
        return write_command(experiment, values, self.argument)

    def _follows_from(self, values: Mapping[str, Any]) -> bool:
        """Return True if a config made from only these values equals this config."""
        try:
            same_config = type(self)(**values)
        except ValidationError:
            return False
        # If the trained length was given, it decides the factor, even if this length
        # equals the default. So a command must not leave it out.
        left_out = self.model_fields_set - same_config.model_fields_set
        return same_config == self and "train_len" not in left_out

    def replace(self, **changes: Any) -> Self:
        """Change some fields, and check the config again as a whole."""
        given_values = self.model_dump(include=self.model_fields_set)
        return type(self).model_validate({**given_values, **changes})


C = TypeVar("C", bound=Config)


def build(
    config_class: type[C],
    values: Mapping[str, Any],
    write_field: Callable[[str], str] = str,
) -> C:
    """Make a config from values. A value is a text, or has the type of its field already.

    InputError names every field that is wrong, as `write_field` writes it (`head_dim` or
    `--head-dim`).
    """
    fields = config_class.model_fields
    try:
        spelled = {key: spell_value(value) for key, value in values.items()}
        if ROTARY_SHARE in spelled and "rotary_dim" not in fields:
            raise make_name_error("key", ROTARY_SHARE, fields)
        return config_class.model_validate(respell(config_class, spelled, write_field))

    except RecursionError:
        raise InputError("a value is nested too deeply") from None

    except ValidationError as error:
        problems = error.errors(include_url=False)
        # If a key does not exist, only this is reported, since all other problems may
        # follow from it.
        unknown = [each for each in problems if each["type"] == "extra_forbidden"]
        if unknown:
            key = str(unknown[0]["loc"][-1])
            raise make_name_error("key", key, fields) from None

        sentences = [_describe_problem(each, write_field) for each in problems]
        raise InputError("; ".join(sentences)) from None


# Other programs take `1-4` for a list of numbers. Here a span like this is an error.
SPAN = re.compile(r"(\d{1,9})-(\d{1,9})")
# The most numbers of a span that the error lists.
LONGEST_SPAN = 100
# An integer of more bits than this is beyond every float64.
MOST_BITS = sys.float_info.max_exp


def _describe_problem(problem: ErrorDetails, write_field: Callable[[str], str]) -> str:
    """Return a problem that pydantic found in a sentence of ours."""
    # The name of the field and, if the field is a list, the number of the wrong item.
    # The location of a problem of the whole config is empty.
    location = problem["loc"]
    is_in_list = len(location) > 1
    field_name = write_field(str(location[0])) if location else ""
    text = problem["msg"].removeprefix("Value error, ")
    value = str(problem["input"])

    if problem["type"] == "literal_error":
        allowed = re.findall(r"'([^']+)'", problem["ctx"]["expected"])
        return str(make_name_error(field_name, value, allowed))

    span = SPAN.fullmatch(value)
    if span and is_in_list:
        low = int(span[1])
        high = int(span[2])
        if low < high < low + LONGEST_SPAN:
            numbers = ",".join(map(str, range(low, high + 1)))
            return f"{field_name} takes a list; type: {field_name} {numbers}"

    if not location:
        # The text of a problem of the whole config names the fields.
        return text
    shown_input = cut_text(repr(problem["input"]))
    return f"{field_name} {translate_message(text)}, got {shown_input}"


def translate_message(text: str) -> str:
    """Return a sentence of pydantic in the words that users read."""
    for pattern, words in WORDS["plain_words"].items():
        text = re.sub(pattern, words, text)
    return text


@dataclass(frozen=True)
class Label:
    """The names of a run. All labels compare equal, since no number depends on them."""

    # The name of the config file, with which the name of the run's folder begins.
    name: str = field(default="", compare=False)
    # The heading of the run in the gallery.
    title: str = field(default="", compare=False)
    # The file of the run, and the case in it, as errors name them.
    origin: str = field(default="", compare=False)


def take_label(path: Path, values: Mapping[str, Any]) -> tuple[Label, dict[str, Any]]:
    """Split the values of a config file into the label of its run and the values of the
    config.
    """
    label = Label(path.stem, find_title(values, str(path)), str(path))
    config_values = dict(values)
    config_values.pop("title", None)
    return label, config_values


def find_title(values: Mapping[str, Any], origin: str) -> str:
    """Return the title among the values of a file or a case, empty without one."""
    title = values.get("title", "")
    if not isinstance(title, str):
        raise InputError(f"{origin}: title must be text, got {title!r}")
    return title


def read_toml(path: Path) -> tuple[str, dict[str, Any]]:
    """Read a config file: the `experiment` it names, and its other keys."""
    check_name(path)
    _check_suffix(path)
    raw = b""
    try:
        raw = read_regular(path, LARGEST_FILE)
        # Editors on Windows put a byte order mark in front of UTF-8.
        values = tomllib.loads(raw.decode("utf-8-sig"))
    except FileNotFoundError:
        raise InputError(f"no config file at {path}") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"cannot read the config file {path}: {reason}") from None
    # tomllib raises a TOMLDecodeError, or ValueError for a number with too many digits.
    except ValueError as error:
        why = explain_content(raw) or str(error)
        raise InputError(f"{path} is not valid TOML: {why}") from None
    except RecursionError:
        raise InputError(f"{path} is nested too deeply for a config") from None

    if is_deep(values):
        raise InputError(f"{path} is nested too deeply for a config")
    if _has_huge_integer(values):
        raise InputError(f"{path} holds an integer that is too large for any setting")

    experiment = values.pop("experiment", None)
    if not isinstance(experiment, str):
        raise InputError(f'{path} must name its experiment: experiment = "precision"')
    return experiment, values


def _has_huge_integer(value: object) -> bool:
    """Return True if a value, or a value inside it, is an integer beyond every float64.

    Python reads any number of hexadecimal digits, but refuses to print the integer.
    """
    if isinstance(value, dict):
        return any(_has_huge_integer(inner) for inner in value.values())
    if isinstance(value, list):
        return any(_has_huge_integer(inner) for inner in value)
    return isinstance(value, int) and value.bit_length() > MOST_BITS


def _check_suffix(path: Path) -> None:
    """Refuse a file whose name shows that it is not a config of runs, and name the
    command that reads it.
    """
    if path.suffix in MODEL_SUFFIXES:
        file = shlex.quote(str(path))
        raise InputError(
            f"{path} is a model's file, not a config of runs; type: ropelab audit"
            f" {file}"
        )
    if path.suffix not in (".toml", ""):
        raise InputError(f"{path} is no TOML file (.toml), which a config of runs is")
