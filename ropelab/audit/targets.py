"""The keys of a configuration, or flags, that each target is given for a wanted
rotation.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ropelab.audit.wanted import BETAS, SHARE, Fragment, Wanted
from ropelab.math import scaling as scalings
from ropelab.readers import registry
from ropelab.readers.reader import longrope_attention, magnitude
from ropelab.readers.servers import VLLM_LENGTHS
from ropelab.readers.spec import RopeSpec
from ropelab.readers.trace import BANDS, MAXIMUM, ORIGINAL
from ropelab.readers.trainers import LLAMAFACTORY
from ropelab.readers.transformers import SCALED
from ropelab.runs.errors import InputError
from ropelab.runs.files import table_beside


def block_of(spec: Wanted) -> Fragment:
    """Return the scaling block, with the axes of a model of images."""
    block = scaling_block(spec)
    return {**(block or {"rope_type": "default"}), **spec.axes} if spec.axes else block


def scaling_block(spec: Wanted) -> Fragment:
    """Return the scaling block under the one name of the type that all runtimes
    know.
    """
    if own := spec.own:
        return (
            {**own, ORIGINAL: spec.trained_len}
            if own["rope_type"] in SCALED
            else dict(own)
        )
    scaling, original = spec.scaling, {ORIGINAL: spec.trained_len}
    if isinstance(scaling, scalings.Unscaled):
        return {}
    if isinstance(scaling, scalings.PositionInterpolation | scalings.DynamicNtk):
        kind = (
            "linear"
            if isinstance(scaling, scalings.PositionInterpolation)
            else "dynamic"
        )
        return {"rope_type": kind, "factor": float(scaling.factor)}
    if isinstance(scaling, scalings.Llama3):
        bands = {name: float(getattr(scaling, name)) for name in BANDS}
        return {"rope_type": "llama3", **bands, **original}
    # attention_factor is written if it is not what the factor alone would give.
    same = math.isclose(spec.attention_factor, usual_attention(spec), rel_tol=1e-12)
    attention = {} if same else {"attention_factor": spec.attention_factor}
    if isinstance(scaling, scalings.Yarn):
        block: Fragment = {
            "rope_type": "yarn",
            "factor": float(scaling.factor),
            **original,
        }
        # Keys at the default that all runtimes share are left out.
        for name, usual in {**BETAS, "truncate": True}.items():
            if (value := getattr(scaling, name)) != usual:
                block[name] = value if isinstance(value, bool) else float(value)
        return {**block, **attention}
    if isinstance(scaling, scalings.LongRope):
        long = list(scaling.long_factor)
        short = list(scaling.short_factor) or [1.0] * len(long)
        lists = {
            "short_factor": short,
            "long_factor": long,
            "factor": float(scaling.factor),
        }
        return {"rope_type": "longrope", **lists, **original, **attention}
    raise InputError(
        f"no configuration has a name for {scaling.name}; one with a name is yarn"
    )


def usual_attention(spec: RopeSpec) -> float:
    factor = getattr(spec.scaling, "factor", 1.0)
    longrope = isinstance(spec.scaling, scalings.LongRope)
    return (
        longrope_attention(factor, spec.trained_len) if longrope else magnitude(factor)
    )


def start_and_share(spec: Wanted) -> tuple[Fragment, Fragment]:
    """Return the length, and partial_rotary_factor unless the whole head rotates."""
    # Dynamic scaling starts at max_position_embeddings, so that it has to be the
    # trained length.
    start = (
        spec.trained_len
        if isinstance(spec.scaling, scalings.DynamicNtk)
        else spec.length
    )
    lengths = dict.fromkeys(
        (MAXIMUM, *(n for n in VLLM_LENGTHS if n in spec.source.present)), start
    )
    # A share that the file has would stay in the block of a server.
    silent = spec.rotary_dim == spec.head_dim and (
        spec.own or SHARE not in spec.source.present
    )
    share = {} if silent else {SHARE: spec.rotary_dim / spec.head_dim}
    # Some classes build scaled tables from a head_dim alone.
    lacks = (
        spec.source.older.refuses_without_head_dim
        and "head_dim" not in spec.source.present
    )
    head = {"head_dim": spec.head_dim} if lacks and block_of(spec) else {}
    return {**lengths, **head}, share


def version4(spec: Wanted) -> Fragment:
    """Return rope_theta and rope_scaling, the type under both of its names."""
    block, (start, share) = block_of(spec), start_and_share(spec)
    block = block or ({"rope_type": "default"} if spec.source.older.needs_block else {})
    if block:
        block = {"rope_type": block["rope_type"], "type": block["rope_type"], **block}
        if "type" in (keys := spec.source.older.block_keys):  # and no others
            block = {key: block[key] for key in keys if key in block}
    # Of longrope, transformers 4 reads the original length at top level only.
    original = (
        {ORIGINAL: spec.trained_len}
        if isinstance(spec.scaling, scalings.LongRope)
        else {}
    )
    emptied = (
        {"rope_parameters": None} if "rope_parameters" in spec.source.present else {}
    )
    head = {**start, "rope_theta": spec.base, **original, **share, **emptied}
    named, blocks = spec.source.older.layer_base_keys, spec.source.layers
    head |= {
        key: blocks[label]["rope_theta"]
        for label, key in named.items()
        if label in blocks
    }
    # The main one last: some classes have one key for all.
    head |= {named[spec.source.main]: spec.base} if spec.source.main in named else {}
    return {**head, "rope_scaling": block or None}


def version5(spec: Wanted) -> Fragment:
    """Return rope_parameters, for a configuration that was read already."""
    block, (start, share) = (
        block_of(spec) or {"rope_type": "default"},
        start_and_share(spec),
    )
    block = {"rope_theta": spec.base, **block, **share}
    layers = (
        {**spec.source.layers, spec.source.main: block} if spec.source.layers else block
    )
    return {**start, "rope_parameters": layers}


def vllm(spec: Wanted) -> Fragment:
    """Return version 5 with the length before the factor where the server multiplies by
    it.
    """
    fragment = version5(spec)
    multiplied = scalings.PositionInterpolation | scalings.DynamicNtk
    # It leaves Gemma 3's lengths alone.
    if isinstance(spec.scaling, multiplied) and "gemma3" not in spec.source.older.name:
        fragment[MAXIMUM] = round(spec.length / spec.scaling.factor)
    return fragment


def sglang(spec: Wanted) -> Fragment:
    """Return vLLM's form as rope_scaling, the magnitude as a multiplier of SGLang's
    own.
    """
    if spec.source.main == "compress":  # it loads DeepSeek-V4 as V3, with one block
        source = replace(spec.source, layers={})
        spec = replace(spec, source=source, base=source.beside["main"].base)
    fragment = version5(spec) if spec.source.layers else vllm(spec)
    name = "rope_parameters" if spec.source.layers else "rope_scaling"
    outer = fragment.pop("rope_parameters")
    block = outer[spec.source.main] if spec.source.layers else outer
    if (wanted := block.pop("attention_factor", None)) and block["rope_type"] == "yarn":
        block["attn_factor"] = wanted / magnitude(block["factor"])
    return {**fragment, name: outer}


def llamafactory(spec: Wanted) -> dict[str, Any]:
    kind = None if spec.own and not spec.raised else block_of(spec).get("rope_type")
    return {
        "rope_scaling": kind if kind in LLAMAFACTORY else "null",
        "cutoff_len": spec.context,
    }


def llamacpp(spec: Wanted) -> dict[str, Any]:
    scaling, flags = spec.scaling, dict[str, Any](ctx_size=spec.context)
    if spec.own and not spec.raised:
        return flags  # the converter writes the file's own scaling
    if isinstance(scaling, scalings.PositionInterpolation):
        return flags | {"rope_scaling": "linear", "rope_scale": scaling.factor}
    if isinstance(scaling, scalings.Yarn):
        flags |= {"rope_scaling": "yarn", "rope_scale": scaling.factor}
        flags["yarn_orig_ctx"] = spec.trained_len
        # left out at the default, unless the file has a value
        for name, usual in BETAS.items():
            if name in spec.source.present or getattr(scaling, name) != usual:
                flags[f"yarn_{name}"] = getattr(scaling, name)
    return flags


def koboldcpp(spec: Wanted) -> dict[str, Any]:
    # Within the length of the file koboldcpp changes nothing by itself.
    if spec.is_released:
        return {"ctx_size": spec.context}

    # With one of the two, koboldcpp picks by a rule of its own.
    flags: dict[str, Any] = {
        "ctx_size": spec.context,
        "rope_freq_scale": 1.0,
        "rope_freq_base": spec.base,
    }
    if isinstance(spec.scaling, scalings.PositionInterpolation):
        flags["rope_freq_scale"] = 1 / spec.scaling.factor
        flags["rope_scaling"] = "linear"
    elif not isinstance(spec.scaling, scalings.Unscaled) and not spec.own:
        # It holds a scale or a base: the base of NTK-aware by the same factor is
        # nearer to what is wanted than none.
        factor = max(1.0, spec.context / spec.trained_len)
        flags["rope_freq_base"] = scalings.ntk_base(spec.geometry, factor)
    return flags


@dataclass(frozen=True)
class Target:
    """The runtimes that read a text back, its settings, and the text with fields in
    braces.
    """

    runtimes: Sequence[str]
    # flags come on top of the file
    config: Callable[[Wanted], Fragment] = lambda spec: {}
    # JSON over several lines; or {json}, {length}, {flags}, or any flag
    text: str = "{lines}"
    flags: Callable[[Wanted], dict[str, Any]] = lambda spec: {}
    # the text where the file has the keys already
    unchanged: str = ""
    replaces: bool = False  # empties rope_scaling, which would replace rope_parameters
    flat: bool = False  # sets keys of the whole model only

    @property
    def as_flag(self) -> bool:
        """True if the keys are a flag of a server, which lays them over the file."""
        return "{json}" in self.text


def target_of(row: dict[str, Any]) -> Target:
    """Return a target of targets.toml, with the functions that it names."""
    others = (
        n for n in registry.RUNTIMES if not n.startswith(tuple(row.get("without", ())))
    )
    makers: Fragment = {
        name: MAKERS[row[name]] for name in ("config", "flags") if name in row
    }
    about: Fragment = {"runtimes": tuple(others), **row, **makers}
    return Target(**{name: value for name, value in about.items() if name != "without"})


MAKERS: dict[str, Callable[[Wanted], Fragment]] = {
    maker.__name__: maker
    for maker in (version4, version5, vllm, sglang, llamafactory, llamacpp, koboldcpp)
}
TARGETS = {name: target_of(row) for name, row in table_beside(__file__).items()}
