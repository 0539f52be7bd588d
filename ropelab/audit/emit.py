"""The inverse of the readers: text that makes a runtime compute a wanted scaling."""

# Every text is read back by the runtime's own reader; every difference is named as a
# loss.

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ropelab.audit.targets import TARGETS
from ropelab.audit.wanted import (
    SHARE,
    Wanted,
    laid_over,
    source_of,
    with_new_scaling,
    with_own_scaling,
)
from ropelab.math import scaling as scalings
from ropelab.math.models import model_named
from ropelab.math.scaling.plan import parameter_text
from ropelab.readers import registry
from ropelab.readers.document import Document, load
from ropelab.readers.flags import Flags, is_moved
from ropelab.readers.spec import RopeSpec
from ropelab.readers.trace import MAXIMUM
from ropelab.runs.errors import InputError, known
from ropelab.runs.rows import Result, Rows
from ropelab.runs.spelling import split_list

READERS = registry.RUNTIMES | registry.TRAINERS


@dataclass(frozen=True)
class Emission:
    """Text to paste for one target, and what the target loses or was not asked."""

    target: str
    text: str
    lost: tuple[str, ...]


@dataclass(frozen=True)
class Emissions(Result):
    """The wanted spec as text for several targets; ``tables["targets"]`` has a row for
    each.
    """

    wanted: Wanted
    targets: tuple[Emission, ...]
    rows: Mapping[str, Rows]
    note: str = ""  # a factor that was raised, a length that the file does not have
    replaced: str = ""  # the file's own scaling that --method replaced


def emit(
    file: str = "",
    *,
    context: int,
    model: str = "",
    method: str = "",
    target: str = "portable",
) -> Emissions:
    """Return the config or flags that give a model this scaling in each target.

    Args:
        file: a config.json or model folder, unless `model` is given.
        context: the wanted length in tokens, at least the trained length.
        model: the name of a known model.
        method: a scaling method in place of the file's own; for an unscaled file or a known model
            it is YaRN if the context exceeds the trained length.
        target: names of targets with commas between them, or `all`.
    """
    if bool(file) == bool(model):
        raise InputError("give either --from FILE or --model NAME")
    document = load(file) if file else Document(model, "config", from_name(model))
    if document.kind != "config":
        raise InputError(
            "--from wants a config.json; a GGUF file is scaled by flags, see audit"
        )
    name = file or model
    source, spec = source_of(name, document.config)
    if context < spec.trained_len:
        raise InputError(
            f"--context {context} is below the trained length, {spec.trained_len}"
        )
    scaled, replaced = not isinstance(spec.scaling, scalings.Unscaled), ""
    if scaled and not method:
        wanted, note = with_own_scaling(name, source, spec, context)
    else:
        wanted, note = with_new_scaling(source, spec, context, method)
    if scaled and method and wanted.scaling != spec.scaling:
        replaced = f"the file's own {spec.method} is replaced by {wanted.method}"
    elif model and (own_method := model_named(model).method) not in (
        "unscaled",
        wanted.method,
    ):
        replaced = f"{model}'s own {own_method} is replaced by {wanted.method}"
    if document.encoding:
        first = (
            f"transformers refuses {document.encoding}: save the file as plain UTF-8"
        )
        note = "; ".join(filter(None, (first, note)))
    names = list(TARGETS) if target == "all" else split_list(target) or [target]
    done = tuple(emitted(each, wanted) for each in names)
    rows = [{"target": e.target, "text": e.text, "lost": list(e.lost)} for e in done]
    return Emissions(wanted, done, {"targets": rows}, note, replaced)


def from_name(name: str) -> Mapping[str, Any]:
    """Return a file of the unscaled model."""
    model = model_named(name)
    sizes = {
        "head_dim": model.head_dim,
        "hidden_size": model.head_dim,
        "num_attention_heads": 1,
    }
    values = {**sizes, MAXIMUM: model.trained_len, "rope_theta": model.base}
    share = (
        {}
        if model.rotated == model.head_dim
        else {SHARE: model.rotated / model.head_dim}
    )
    return {"model_type": model.model_type, **values, **share}


def emitted(target: str, wanted: Wanted) -> Emission:
    """Return the text for a target, to be laid over the part of a file that it
    changes.
    """
    chosen, written, source = (
        TARGETS[known("target", target, TARGETS)],
        wanted,
        wanted.source,
    )
    model, nest = source.config, source.nest
    if type(wanted.scaling) is scalings.NtkAware and not wanted.own:
        # Only Hunyuan's own block has a name for NTK-aware; elsewhere it is another
        # base.
        base = scalings.ntk_base(wanted.geometry, wanted.scaling.factor)
        written = replace(wanted, base=base, scaling=scalings.Unscaled())
    fragment, flags = chosen.config(written), chosen.flags(written)
    if chosen.replaces and "rope_scaling" in source.present:
        fragment = {"rope_scaling": None, **fragment}
    if flags and written.base != wanted.base:
        flags["rope_freq_base"] = written.base
    patch, given = fragment, "{json}" in chosen.text  # as a flag
    if given and is_moved(model):
        nest = ("text_config",)
    for part in reversed(nest):
        patch = {part: patch}
    lost = [f"it cannot reach {wanted.beyond} tokens"] if wanted.beyond else []
    if nest and nest[0].startswith("decoder") and wanted.method != "unscaled":
        lost.append("it leaves the rotation of the encoder as it is")
    for name in chosen.runtimes:
        config = Flags(overrides={name: patch}).applied(name, model) if given else None
        config = config or laid_over(model, fragment, nest)
        reading = registry.read(READERS[name], config, flags)
        if (main := reading.main) is None:
            word = "refuses it" if reading.outcome == "refused" else "was not asked"
            lost.append(f"{name} {word}: {reading.problem}")
            continue
        own = (
            isinstance(main.scaling, scalings.LongRope)
            and "--max-model-len" in chosen.text
        )
        if own or (given and main.length > wanted.length):
            main = replace(main, claimed_len=None)  # the flag is the length
        lost += [f"{name}: {word}" for word in differences(main, wanted)]
        for label, other in source.beside.items():
            got = replace(reading.layers.get(label, main), claimed_len=None)
            lost += [f"{name}: {label}: {word}" for word in differences(got, other)]
    if nest and chosen.flat:
        lost.append(f"it sets no keys inside {nest[0]}")
    plain = {name: parameter_text(value) for name, value in flags.items()}
    # -c has a place of its own in the text.
    words = (
        f" --{n.replace('_', '-')} {word}"
        for n, word in plain.items()
        if n != "ctx_size"
    )
    forms = {"json": json.dumps(patch), "lines": json.dumps(patch, indent=2)}
    text = chosen.text.format(
        length=wanted.context, flags="".join(words), **forms, **plain
    )
    return Emission(target, text, tuple(lost))


def differences(got: RopeSpec, wanted: RopeSpec) -> list[str]:
    """Name differences in width, frequencies by length, factor on the logits, claimed
    length.
    """
    if got.rotary_dim != wanted.rotary_dim:
        return [f"rotary_dim {got.rotary_dim}, not {wanted.rotary_dim}"]
    words, lengths = [], (64, wanted.trained_len, wanted.length, 2 * wanted.length)
    # Runtimes compute in float32, so smaller differences mean nothing.
    tables = ((got.inv_freq(n), wanted.inv_freq(n)) for n in lengths)
    if not all(np.allclose(*pair, rtol=1e-6, atol=0) for pair in tables):
        other = (
            got.scaling.name == wanted.scaling.name
            and got.trained_len != wanted.trained_len
        )
        start = f" from {got.trained_len} tokens" if other else ""
        base = f" at base {got.base:g}" if got.base != wanted.base else ""
        words.append(
            f"frequencies: {got.method}{start}{base} instead of {wanted.method}"
        )
    if not math.isclose(got.logit_multiplier, wanted.logit_multiplier, rel_tol=1e-6):
        words.append(
            f"logits x {got.logit_multiplier:.6g}, not {wanted.logit_multiplier:.6g}"
        )
    if got.claimed_len is not None and got.claimed_len != wanted.length:
        words.append(f"length {got.claimed_len}, not {wanted.length}")
    return words
