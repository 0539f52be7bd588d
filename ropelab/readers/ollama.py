"""ollama: what its converter makes of a configuration, which llama.cpp then reads.

Read, not run, from convert/convert.go, convert_llama.go, convert_mixtral.go,
convert_qwen2.go, convert_phi3.go, convert_gptoss.go, fs/ggml/gguf.go and
llm/llama_server.go of ollama fb30760 (2026-08-21). Its server starts llama.cpp without
any flag for rotation.
"""

from collections.abc import Callable

import numpy as np

from ropelab.readers import llamacpp, scaling_types
from ropelab.readers.families import read_table
from ropelab.readers.llamacpp_converter import (
    DIVISORS,
    LONG_DIVISORS,
    SHORT_DIVISORS,
    Fields,
    compute_divisors,
)
from ropelab.readers.spec import (
    LARGEST_FLOAT32,
    MOST_FEATURES,
    NotModelledError,
    RefusedError,
    RopeSpec,
    require_number,
    require_numbers,
    shorten_value,
)
from ropelab.readers.trace import BANDS, ORIGINAL, Trace

BLOCK = "rope_scaling"
# The architecture of a model type, for a part of a file that names none.
ARCHITECTURES: dict[str, str] = read_table("names")["ollama"]

Writer = Callable[[Trace], Fields]
WRITERS: dict[str, Writer] = {}


def writes(architecture: str) -> Callable[[Writer], Writer]:
    """Let a function stand for ollama's converter of an architecture."""

    def register(writer: Writer) -> Writer:
        WRITERS[architecture] = writer
        return writer

    return register


def read(trace: Trace) -> dict[str, RopeSpec]:
    """Return the spec of the file that the first architecture's converter writes."""
    model_type = trace.whole.get("model_type", "")
    named = trace.whole.get("architectures")
    if not named:
        named = [ARCHITECTURES.get(str(model_type))]
    first = named[0] if isinstance(named, list) else None

    writer = WRITERS.get(first) if isinstance(first, str) else None
    if writer is None:
        model = f"model type {shorten_value(model_type)}"
        if first:
            model = shorten_value(first)
        raise NotModelledError(f"no converter for {model}, or one that was not read")
    return llamacpp.read_fields(Trace(trace.whole), writer(trace), trace.model_type)


def read_size(trace: Trace, *paths: str) -> int:
    """Return the first of the values at some paths that is not 0; 0 if all are.

    RefusedError: Go does not read a value as a whole number of 32 bits.
    """
    for path in paths:
        value = trace.get(path)
        if value is None:
            continue

        is_whole = isinstance(value, int) and not isinstance(value, bool)
        if not is_whole or not 0 <= value < 2**32:
            trace.mark(path, "refused")
            raise RefusedError(
                f"{path} must be written as a whole number, not {shorten_value(value)}"
            )
        if value:
            return value
    return 0


def read_float32(trace: Trace, path: str) -> float:
    """Return a number rounded to float32; 0 if it is missing."""
    value = trace.get(path)
    if value is None:
        return 0.0
    number = require_number(value, path)
    if abs(number) > LARGEST_FLOAT32:
        raise RefusedError(f"{path} does not fit into 32 bits")
    return float(np.float32(number))


def read_type(
    trace: Trace, key: str, known: tuple[str, ...], note: str = "", refusal: str = ""
) -> str:
    """Return the scaling type under one of its two names; empty: there is none.

    Args:
        trace: the configuration.
        key: type or rope_type.
        known: the types that are written into the file.
        note: a remark on the key of another type.
        refusal: why another type stops the converter; empty: it does not.
    """
    if trace.language_part.get(BLOCK) is not None and trace.block(BLOCK) is None:
        raise RefusedError("rope_scaling must be a dict")

    path = f"{BLOCK}.{key}"
    scaling_type = trace.get(path, status="ignored")
    if scaling_type is not None and not isinstance(scaling_type, str):
        trace.mark(path, "refused")
        raise RefusedError(
            f"{path} must be a string, not {shorten_value(scaling_type)}"
        )

    if scaling_type in known:
        trace.mark(path, "translated", "written into the file")
    elif scaling_type:
        trace.mark(path, "refused" if refusal else "ignored", note)
        if refusal:
            raise RefusedError(
                f"scaling type '{shorten_value(scaling_type)}' {refusal}"
            )
    return scaling_type or ""


def find_head_width(trace: Trace, *heads: str) -> int:
    """Return hidden_size divided by the number of heads, by the keys ``heads``."""
    hidden = read_size(trace, "hidden_size")
    count = read_size(trace, *heads)
    if not hidden or not count or hidden < count:
        raise RefusedError("hidden_size or the number of heads is missing")
    if hidden // count > MOST_FEATURES:
        raise RefusedError(f"a head of {hidden // count} features")
    return hidden // count


def read_base(trace: Trace, always: bool = True) -> float:
    """Return rope_theta at top level; 0 if it is missing.

    ``always``: True for a converter that writes a base of 0 if the key is missing.
    """
    base = read_float32(trace, "rope_theta")
    if base:
        trace.mark("rope_theta", "translated", "written as rope.freq_base")
    elif always:
        raise NotModelledError(
            "rope_theta is not at top level, and a base of 0 is written"
        )
    return base


def read_context(trace: Trace, *paths: str) -> int:
    """Return the context length, without which llama.cpp loads no file."""
    length = read_size(trace, *paths)
    if not length:
        raise RefusedError(
            f"{paths[0]} is missing, and llama.cpp needs a context length"
        )
    return length


def take_number(trace: Trace, name: str) -> float:
    """Return a number of the block, and mark its key as written into the file."""
    value = read_float32(trace, f"{BLOCK}.{name}")
    trace.mark(f"{BLOCK}.{name}", "translated", "written into the file")
    return value


@writes("LlamaForCausalLM")
@writes("MixtralForCausalLM")
def write_llama(trace: Trace) -> Fields:
    """Write linear if it is under `type`, and llama3 if it is under `rope_type`."""
    # The rotated width is hidden_size / heads, and llama.cpp refuses a Llama whose
    # rotated width is not the width of its head.
    width = find_head_width(trace, "num_attention_heads", "n_head")
    head_dim = read_size(trace, "head_dim") or width
    if head_dim != width:
        trace.mark("head_dim", "refused")
        raise RefusedError(
            f"a width of {width} is written for heads of {head_dim} features"
        )

    fields: Fields = {
        "context_length": read_context(trace, "max_position_embeddings", "n_ctx"),
        "attention.key_length": head_dim,
        "rope.dimension_count": width,
    }
    base = read_base(trace, always=False)
    if base:
        fields["rope.freq_base"] = base

    note = "only {} is read under this name"
    older = read_type(trace, "type", ("linear",), note.format("linear"))
    newer = read_type(trace, "rope_type", ("llama3",), note.format("llama3"))
    if older == "linear":
        fields["rope.scaling.type"] = "linear"
        fields["rope.scaling.factor"] = take_number(trace, "factor")
    if newer == "llama3" and base:
        # Numbers that are missing or 0 have the defaults of llama.cpp's converter.
        numbers_given = {name: take_number(trace, name) for name in BANDS}
        block = {name: value for name, value in numbers_given.items() if value}
        original = read_size(trace, f"{BLOCK}.{ORIGINAL}") or 8192
        trace.mark(f"{BLOCK}.{ORIGINAL}", "translated", "written into the file")
        fields[DIVISORS] = compute_divisors(block, original, head_dim, base)
    return fields


@writes("Qwen2ForCausalLM")
def write_qwen2(trace: Trace) -> Fields:
    width = find_head_width(trace, "num_attention_heads")
    read_type(
        trace, "type", ("mrope", "default"), refusal="cannot be written for Qwen2"
    )

    # The converter declares the factor as a list, which no file gives. yarn without a
    # factor fails, too: the type that the converter has for the list cannot be written.
    factor = trace.get(f"{BLOCK}.factor", status="ignored")
    if factor is not None and not isinstance(factor, list):
        trace.mark(f"{BLOCK}.factor", "refused")
        raise RefusedError(
            "rope_scaling.factor is read as a list for Qwen2, and a number stops it"
        )
    return {
        "context_length": read_context(trace, "max_position_embeddings"),
        "attention.key_length": width,
        "rope.freq_base": read_base(trace),
    }


@writes("Phi3ForCausalLM")
def write_phi3(trace: Trace) -> Fields:
    """Write two tables, empty or not."""
    width = find_head_width(trace, "num_attention_heads", "n_head")
    known = ("su", "longrope", "yarn")
    scaling_type = read_type(trace, "type", known, refusal="is unknown for Phi-3")
    fields: Fields = {
        "context_length": read_context(trace, "max_position_embeddings"),
        "attention.key_length": width,
        # The whole head is written, whatever share rotates.
        "rope.dimension_count": width,
        "rope.freq_base": read_base(trace),
    }
    for name, field in (
        ("long_factor", LONG_DIVISORS),
        ("short_factor", SHORT_DIVISORS),
    ):
        table = trace.get(f"{BLOCK}.{name}", status="translated")
        fields[field] = () if table is None else require_numbers(table, name)

    # The original length inside the block is not read.
    trained = read_size(trace, ORIGINAL)
    if trained:
        fields["rope.scaling.original_context_length"] = trained
    if not scaling_type:
        return fields
    if trained < 2:
        raise NotModelledError(f"an attention factor without {ORIGINAL}")

    stretch = fields["context_length"] / trained
    attention = scaling_types.longrope_attention(stretch, trained)
    if scaling_type == "yarn":
        attention = scaling_types.yarn_attention(stretch)
    return {**fields, "rope.scaling.attn_factor": attention}


@writes("GptOssForCausalLM")
def write_gptoss(trace: Trace) -> Fields:
    """Write yarn unless another type is named; the factor at top level wins."""
    scaling_type = read_type(trace, "rope_type", ("yarn", "linear", "none", "longrope"))
    factor_at_top = read_float32(trace, "rope_scaling_factor")
    factor_in_block = take_number(trace, "factor")
    if factor_at_top and factor_in_block:
        trace.mark(f"{BLOCK}.factor", "overridden", "by rope_scaling_factor")

    start = read_size(trace, "initial_context_length")
    length = read_size(trace, "max_position_embeddings") or int(factor_at_top * start)
    trained = read_size(trace, f"{BLOCK}.{ORIGINAL}") or start or length
    if not length:
        raise RefusedError(
            "max_position_embeddings is missing, and llama.cpp needs one"
        )

    fields: Fields = {
        "context_length": length,
        "attention.key_length": read_size(trace, "head_dim"),
        "rope.freq_base": read_base(trace),
        "rope.scaling.type": scaling_type or "yarn",
        "rope.scaling.factor": factor_at_top or factor_in_block,
        "rope.scaling.original_context_length": trained,
    }
    for name in ("beta_fast", "beta_slow"):
        value = take_number(trace, name)
        if value:
            fields[f"rope.scaling.yarn_{name}"] = value
    return fields
