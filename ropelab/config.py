"""One validated, frozen value per run: TOML and flags in, one clear sentence out if wrong.

An experiment's config is a subclass of `Config` with one field per flag. Flags, TOML files and
Python keywords all pass through `build`, so they are read, checked and refused in the same words.
"""

import math
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
)
from pydantic_core import ErrorDetails

from ropelab.errors import InputError, unknown_name
from ropelab.machine import DtypeName, resolve_device, resolve_dtype

SUFFIXES = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3}
NUMBER = re.compile(
    r"\s*([+-]?(?:\d[\d_]*\.?\d*|\.\d+)(?:e[+-]?\d+)?)\s*([kmg]?)\s*", re.IGNORECASE
)


def read_number(value: object) -> object:
    """Read a number as people write it: `1e6`, `500_000`, `128k` (= 131072, k is 1024).

    >>> read_number("128k"), read_number("1e6"), read_number("0.5")
    (131072, 1000000, 0.5)
    """
    if isinstance(value, bool):
        raise ValueError("must be a number, not true or false")
    if not isinstance(value, str):
        return value
    match = NUMBER.fullmatch(value)
    if match is None:
        raise ValueError("must be a number such as 4096, 1e6 or 128k")
    number = float(match[1].replace("_", "")) * SUFFIXES[match[2].lower()]
    return int(number) if math.isfinite(number) and number == int(number) else number


def split_list(text: str) -> list[str]:
    """Split at the commas that stand outside brackets, and drop empty parts.

    >>> split_list("yarn(factor=4, beta_fast=8), longrope(factors=[1, 2]), pi,")
    ['yarn(factor=4, beta_fast=8)', 'longrope(factors=[1, 2])', 'pi']
    """
    parts, depth = [""], 0
    for character in text:
        depth += (character in "([") - (character in ")]")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts if part.strip()]


def read_list(value: object) -> object:
    """A list as people type it, `a,b(c=1,d=2)`, or as TOML and Python give it; or one number."""
    if isinstance(value, str):
        return tuple(split_list(value))
    if isinstance(value, int | float) and not isinstance(value, bool):
        return (value,)
    return tuple(value) if isinstance(value, list) else value


def _even(value: int) -> int:
    if value % 2:
        raise ValueError("must be even: rotary features come in pairs")
    return value


def _resolved_dtype(asked: DtypeName, info: ValidationInfo) -> DtypeName:
    """The number format by name; `auto` is what suits the device, a field before this one."""
    return resolve_dtype(asked, info.data["device"]) if "device" in info.data else asked


Count = Annotated[int, BeforeValidator(read_number), Field(ge=1)]
EvenCount = Annotated[int, BeforeValidator(read_number), Field(ge=2), AfterValidator(_even)]
Natural = Annotated[int, BeforeValidator(read_number), Field(ge=0)]
Real = Annotated[float, BeforeValidator(read_number), Field(allow_inf_nan=False)]
Positive = Annotated[float, BeforeValidator(read_number), Field(gt=0, allow_inf_nan=False)]
Base = Annotated[float, BeforeValidator(read_number), Field(gt=1, allow_inf_nan=False)]
AsList = BeforeValidator(read_list)
"""Marks a tuple field that may be typed as `a,b`."""
Names = Annotated[tuple[str, ...], AsList]
Counts = Annotated[tuple[Count, ...], AsList, Field(min_length=1)]
Naturals = Annotated[tuple[Natural, ...], AsList, Field(min_length=1)]
Bases = Annotated[tuple[Base, ...], AsList, Field(min_length=1)]
Device = Annotated[Literal["auto", "cpu", "cuda"], AfterValidator(resolve_device)]
Dtype = Annotated[DtypeName, AfterValidator(_resolved_dtype)]
"""The number format of training and evaluation; the class has a field `device` before it."""


class Config(BaseModel):
    """Base of every experiment's config: frozen, complete, and without unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    def inputs(self) -> dict[str, str]:
        """Fingerprints of what the run reads besides its config (a corpus, stored results)."""
        return {}

    def reads(self) -> tuple[str, ...]:
        """The experiments whose stored runs this one reads."""
        return ()

    def requires(self) -> tuple[tuple[str, dict[str, Any]], ...]:
        """Runs to make before this one: (experiment, values)."""
        return ()

    def changed(self) -> dict[str, Any]:
        """The fields whose values differ from the defaults, in the order of the class."""
        default = type(self)().model_dump(mode="json")
        mine = self.model_dump(mode="json")
        return {name: value for name, value in mine.items() if value != default[name]}

    def replace(self, **changes: Any) -> Self:
        """The same config with some fields changed, checked again as a whole."""
        return type(self).model_validate({**self.model_dump(), **changes})


C = TypeVar("C", bound=Config)


def build(config_class: type[C], values: Mapping[str, Any], name: Callable[[str], str] = str) -> C:
    """Validate `values` into a config.

    Args:
        values: field name to value, text or already typed.
        name: how a field is called where the values came from (`head_dim` or `--head-dim`).
    Raises:
        InputError: one line that names every field that is wrong, and what it allows.
    """
    try:
        return config_class.model_validate(dict(values))
    except ValidationError as error:
        problems = error.errors(include_url=False)
        if unknown := [p for p in problems if p["type"] == "extra_forbidden"]:
            key = str(unknown[0]["loc"][-1])
            raise unknown_name("key", key, config_class.model_fields) from None
        raise InputError("; ".join(_sentence(p, name) for p in problems)) from None


def _sentence(problem: ErrorDetails, name: Callable[[str], str]) -> str:
    """One problem as a person would say it."""
    location = problem["loc"]
    if problem["type"] == "literal_error":
        allowed = re.findall(r"'([^']+)'", problem["ctx"]["expected"])
        return str(unknown_name(name(str(location[0])), str(problem["input"]), allowed))
    text = problem["msg"].removeprefix("Value error, ")
    if not location:
        return text
    text = re.sub(r"^(Input|Value) should be", "must be", text)
    text = re.sub(r"^(Input|Value) should have", "must have", text)
    text = text.replace("a valid integer, unable to parse string as an integer", "a whole number")
    text = re.sub(r"a valid integer, got a number with a fractional part", "a whole number", text)
    text = text.replace("a valid boolean, unable to interpret input", "true or false")
    text = re.sub(r"at least 1 item after.*", "at least one value", text)
    text = text.replace("a valid number, unable to parse string as a number", "a number")
    return f"{name(str(location[0]))} {text}, got {problem['input']!r}"


def read_toml(path: Path) -> tuple[str, dict[str, Any]]:
    """Read a config file: the `experiment` it names, and its other keys.

    Raises:
        InputError: the file is missing, is not TOML, or names no experiment.
    """
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"no config file at {path}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read the config file {path}: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path} is not valid TOML: {error}") from None
    experiment = values.pop("experiment", None)
    if not isinstance(experiment, str):
        raise InputError(f'{path} must name its experiment: experiment = "precision"')
    return experiment, values
