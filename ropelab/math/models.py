"""Rotary geometry and scaling of well-known models: the rows of models.toml."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ropelab.runs.errors import make_name_error
from ropelab.runs.files import read_table_beside

if TYPE_CHECKING:
    import pandas as pd

# How the pairs of a head are divided among axes: in runs of pairs (mrope: Qwen2-VL,
# arXiv:2409.12191), in alternation (mrope_interleaved: Qwen3-VL), or in runs that have
# frequencies of their own (axial: 2D RoPE, FLUX's axes_dim).
Layout = Literal["mrope", "mrope_interleaved", "axial"]

# Fields of configs about the rotary embedding, each with the attribute of a
# `KnownModel` that fills the field.
EMBEDDING_FIELDS = {
    "base": "base",
    "head_dim": "head_dim",
    "rotary_dim": "rotary_dim",
    "method": "method",
    "train_len": "trained_len",
}
# Fields of configs that decide the factor of a method.
FACTOR_FIELDS = ("context", "test_len", "train_len", "factor")


@dataclass(frozen=True, kw_only=True)
class KnownModel:
    """The rotary embedding of a model, from its published configuration.

    Lengths are in tokens.
    """

    name: str
    base: float
    # Features of a head.
    head_dim: int
    # The length of the training before `method` was applied.
    trained_len: int
    # Where these numbers are from: a repository and keys of its config.json, or papers.
    source: str
    # Rotated features of a head; None if all rotate.
    rotary_dim: int | None = None
    # The longest length of the training with `method`; None if no length was published.
    extended_len: int | None = None
    # The context that the configuration promises; None if it is the trained length.
    context_len: int | None = None
    # If users have to switch `method` on, the context that config.json allows without
    # `method`; None in all other models.
    unscaled_len: int | None = None
    # A scaling method with its parameters.
    method: str = "unscaled"
    # The numbers of pairs that read each axis of a position; empty if positions have one
    # axis.
    sections: tuple[int, ...] = ()
    note: str = ""
    # The value of model_type in config.json.
    model_type: str = "llama"
    # Other names of the model, in lower case.
    also: tuple[str, ...] = ()

    @property
    def rotary_width(self) -> int:
        return self.rotary_dim or self.head_dim

    @property
    def promised_len(self) -> int:
        """Tokens that the configuration promises."""
        return self.context_len or self.trained_len

    @property
    def released_len(self) -> int:
        """Tokens that the model's config.json allows as it was released."""
        return self.unscaled_len or self.promised_len

    @property
    def scaled_by_file(self) -> bool:
        """True if config.json has the method.

        False: the model has no method, or users switch it on.
        """
        return self.method != "unscaled" and self.unscaled_len is None

    @property
    def factor(self) -> float:
        return self.promised_len / self.trained_len


def _read_models() -> dict[str, KnownModel]:
    models = {}
    for name, row in read_table_beside(__file__).items():
        for field in ("sections", "also"):
            row[field] = tuple(row.get(field, ()))
        models[name] = KnownModel(name=name, **row)
    return models


MODELS = _read_models()
OTHER_NAMES = {other: model.name for model in MODELS.values() for other in model.also}


def is_known(name: str) -> bool:
    key = name.lower()
    return key in MODELS or key in OTHER_NAMES


def find_model(name: str) -> KnownModel:
    if not is_known(name):
        raise make_name_error("model", name, [*MODELS, *OTHER_NAMES])
    key = name.lower()
    return MODELS[OTHER_NAMES.get(key, key)]


def fill_from_model(values: Any, further_fields: Mapping[str, str]) -> Any:
    """Return the values for a config; the model fills in what the user does not give.

    Without a model the values are returned as they are. The model is a name or, if it
    was read from a file, a `KnownModel`, which is then removed from the values.
    `further_fields` are fields of the config besides EMBEDDING_FIELDS, each with the
    attribute of a `KnownModel` that fills it.
    """
    if not isinstance(values, dict) or not values.get("model"):
        return values

    given_values = dict(values)
    if isinstance(given_values["model"], KnownModel):
        model = given_values.pop("model")
    else:
        model = find_model(str(given_values["model"]))

    # The model's own method, named without parameters, stands for the method with the
    # model's parameters. If the user gives a field that decides the factor, the name
    # stands for the method with this other factor.
    own_method, _, _ = model.method.partition("(")
    names_own_method = given_values.get("method") == own_method
    if names_own_method and given_values.keys().isdisjoint(FACTOR_FIELDS):
        del given_values["method"]

    model_values = {}
    for field, attribute in {**EMBEDDING_FIELDS, **further_fields}.items():
        model_values[field] = getattr(model, attribute)

    # `extended_len` is the length of a further training with the model's own scaling. It
    # does not hold if the user changes any field that decides the scaling.
    scaling_fields = {*EMBEDDING_FIELDS, "factor"}
    if not given_values.keys().isdisjoint(scaling_fields):
        model_values.pop("extended_len", None)

    return model_values | given_values


def table() -> "pd.DataFrame":
    """Return a row for each known model."""
    # The command line imports this file for names, which need no pandas.
    import pandas as pd

    rows = []
    for model in MODELS.values():
        row = {
            "name": model.name,
            "base": model.base,
            "head_dim": model.head_dim,
            "rotary_dim": model.rotary_width,
            "train_len_tokens": model.trained_len,
            "extended_len_tokens": model.extended_len,
            "context_len_tokens": model.promised_len,
            "method": model.method,
            "also": ", ".join(model.also),
            "note": model.note,
            "source": model.source,
        }
        rows.append(row)
    return pd.DataFrame(rows)
