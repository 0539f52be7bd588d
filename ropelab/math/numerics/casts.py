"""Cast plans: the number format that each stage of a rotary implementation rounds to.

    position   m, as it enters the product
    inv_freq   theta_i, as it is stored
    angle      m * theta_i, as the product returns it
    table      cos and sin of the angle, as they are stored
    rotation   x1 cos - x2 sin and x1 sin + x2 cos: every product and every sum
    score      the rotated query and key as they enter the dot product, and the score (not the sum)

A plan also has two rules: how `frequencies` and how `angles` are computed. Rules are no
casts, but implementations differ in them, too.
"""

from dataclasses import dataclass, fields, replace
from typing import Any, Literal, get_args

from ropelab.math.numerics.formats import FORMATS, FloatFormat, format_named
from ropelab.runs.errors import InputError, check_known
from ropelab.runs.files import read_table_beside
from ropelab.runs.own import find_own
from ropelab.runs.spelling import read_format, split_named

Stage = Literal["position", "inv_freq", "angle", "table", "rotation", "score"]
STAGES: tuple[Stage, ...] = get_args(Stage)

# exact: base^(-2i/d) in float64, then one rounding to the format of inv_freq.
# float32_pow: 1 / base^(2i/d) with every step rounded to float32, as nearly all code
#     writes it. The power is rounded correctly here. Math libraries miss that by a unit
#     or two in the last place.
Frequencies = Literal["exact", "float32_pow"]
# product: m * theta_i.
# recurrence: the angle of the first pair is m. The angle of each next pair is the angle of
#     the pair before times base^(-2/d), rounded to the format of the angle (ggml's
#     `theta *= theta_scale`).
Angles = Literal["product", "recurrence"]
RULES = {
    "frequencies": get_args(Frequencies),
    "angles": get_args(Angles),
}

EXACT = FORMATS["float64"]


@dataclass(frozen=True, kw_only=True)
class CastPlan:
    """The format of every stage and the two rules; all exact float64 by default."""

    position: FloatFormat = EXACT
    inv_freq: FloatFormat = EXACT
    angle: FloatFormat = EXACT
    table: FloatFormat = EXACT
    rotation: FloatFormat = EXACT
    score: FloatFormat = EXACT
    frequencies: Frequencies = "exact"
    angles: Angles = "product"

    @property
    def label(self) -> str:
        """The plan as `parse_cast` reads it; 'float64' for the exact plan.

        >>> CastPlan(table=FORMATS["bfloat16"]).label
        'table=bfloat16'
        """
        parts = []
        for name, value in self.list_inexact():
            if isinstance(value, FloatFormat):
                value = value.name
            parts.append(f"{name}={value}")
        if not parts:
            return EXACT.name
        return ",".join(parts)

    @property
    def title(self) -> str:
        """The label; if all stages have the same format, it is named once.

        >>> parse_cast("bf16,frequencies=float32_pow").title
        'all=bfloat16,frequencies=float32_pow'
        """
        formats = {getattr(self, stage) for stage in STAGES}
        if len(formats) > 1 or formats == {EXACT}:
            return self.label
        (common_format,) = formats
        parts = [f"all={common_format.name}"]
        for name, value in self.list_inexact():
            if name in RULES:
                parts.append(f"{name}={value}")
        return ",".join(parts)

    @property
    def phase(self) -> "CastPlan":
        """The part that decides the angles: plans with equal phases have equal angles."""
        return replace(self, table=EXACT, rotation=EXACT, score=EXACT)

    @property
    def storage(self) -> "CastPlan":
        """The part that decides the stored cos and sin."""
        return replace(self, rotation=EXACT, score=EXACT)

    @property
    def has_exact_angles(self) -> bool:
        """True if no stage or rule changes the angles."""
        return self.phase == CastPlan()

    @property
    def has_exact_table(self) -> bool:
        """True if cos and sin are stored as computed, even if their angles are rounded."""
        return self.table == EXACT

    @property
    def consistent(self) -> bool:
        """True if every stored cos and sin belongs to the exact angle m * theta_i,
        where theta_i is the stored frequency.

        A score then depends only on the distance, so that its spread is 0.
        """
        return self.position == self.angle == self.table == EXACT

    def list_inexact(self) -> list[tuple[str, FloatFormat | str]]:
        """Return the stages and rules that are not exact, in the order of the chain."""
        inexact = []
        for field in fields(self):
            value = getattr(self, field.name)
            if value != field.default:
                inexact.append((field.name, value))
        return inexact

    def repair(self, name: str) -> "CastPlan":
        """Return the plan with one stage or rule made exact."""
        exact = getattr(CastPlan(), name)
        return replace(self, **{name: exact})


def parse_cast(text: str) -> CastPlan:
    """Read `inv_freq=bfloat16,table=float16`.

    `all=bfloat16` sets every stage, and so does `bfloat16` by itself. Each of these
    must come first. The parts that follow replace single stages.
    """
    # `label` writes the exact plan as the name of its format.
    if text == EXACT.name:
        return CastPlan()

    values: dict[str, Any] = {}
    given_names: set[str] = set()
    try:
        parts = split_named(text)
    except ValueError as error:
        raise InputError(f"cast {error}, got {text!r}") from None
    for part in parts:
        name, equals_sign, value = (piece.strip() for piece in part.partition("="))
        if not equals_sign:
            if read_format(part) not in FORMATS:
                raise InputError(
                    f"cannot read cast '{part}': write stage=format, such as"
                    " angle=tf32, or a format for all stages, such as bfloat16"
                )
            name = "all"
            value = part

        if name in given_names:
            raise InputError(f"'{text}': {name} is given twice")
        if name == "all" and given_names:
            raise InputError(f"'{text}': all= sets every stage; write it first")
        given_names.add(name)

        if name in RULES:
            values[name] = check_known(f"value of {name}", value, RULES[name])
            continue

        name = check_known("stage", name, ("all", *STAGES, *RULES))
        fmt = format_named(value)
        if name == "all":
            values |= dict.fromkeys(STAGES, fmt)
        else:
            values[name] = fmt
    return CastPlan(**values)


@dataclass(frozen=True)
class CastPreset:
    """A cast plan of a real implementation."""

    name: str
    plan: CastPlan
    models: str  # the code that it is a model of
    source: str  # a thread or file to read


def _read_presets() -> dict[str, CastPreset]:
    presets = {}
    for row in read_table_beside(__file__)["preset"]:
        name = row["name"]
        plan = parse_cast(row["cast"])
        presets[name] = CastPreset(name, plan, row["models"], row["source"])
    return presets


PRESETS = _read_presets()


def find_preset(name: str) -> CastPreset:
    if name in PRESETS:
        return PRESETS[name]

    plan = find_own("casts", name)
    if not isinstance(plan, CastPlan):
        return PRESETS[check_known("preset", name, PRESETS)]
    # Results keep only the label of a plan, so that reading the label must give the
    # same plan again.
    if parse_cast(plan.label) != plan:
        raise InputError(
            f"{name}: formats of a cast plan are those of ropelab, as they are"
        )
    return CastPreset(name, plan, models=name, source=name)
