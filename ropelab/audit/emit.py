"""The inverse of the readers: text that makes a runtime compute a wanted scaling."""
# Every text is read back by the runtime's own reader; every difference is named as a loss.

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ropelab.audit.document import Document, load
from ropelab.audit.flags import Flags, is_moved
from ropelab.audit.result import Result, Rows
from ropelab.audit.runtimes import registry
from ropelab.audit.runtimes.families import TRAINED, Family, family_of, table
from ropelab.audit.runtimes.reader import longrope_attention, magnitude
from ropelab.audit.runtimes.servers import VLLM_LENGTHS
from ropelab.audit.runtimes.spec import RopeSpec
from ropelab.audit.runtimes.trace import BANDS, BLOCKS, MAXIMUM, ORIGINAL, language_part, rope_block
from ropelab.audit.runtimes.trainers import LLAMAFACTORY
from ropelab.audit.runtimes.transformers import SCALED, loaded_block
from ropelab.math import scaling as scalings
from ropelab.math.methods import parse_scaling
from ropelab.math.models import model_named
from ropelab.math.scaling.plan import parameter_text
from ropelab.runs.errors import InputError, known
from ropelab.runs.spelling import split_list

Fragment = dict[str, Any]  # keys of a configuration
READERS = registry.RUNTIMES | registry.TRAINERS

# Types of a file whose factor can be raised for a longer context than the file reaches.
RAISED = ("linear", "yarn", "llama3")
SHARE = "partial_rotary_factor"
BETAS = {"beta_fast": 32, "beta_slow": 1}


@dataclass(frozen=True, kw_only=True)
class Wanted(RopeSpec):
    """A rotation to be written into a file, and what that file has already."""

    context: int  # as asked; the file itself may allow more
    beyond: int = 0  # as asked, where the file's own scaling does not reach it
    own: Fragment | None = None  # the file's own block, which stays
    raised: bool = False  # but for its factor
    main: str = ""  # the layer type of this spec, where each has a block
    layers: Fragment = field(default_factory=dict)  # the blocks, with this one as it was
    beside: Mapping[str, RopeSpec] = field(default_factory=dict)  # rotations of the other layers
    axes: Fragment = field(default_factory=dict)  # keys of the block that any scaling keeps
    present: tuple[str, ...] = ()  # of the names of blocks and lengths, and of the head's size
    older: Family = field(default_factory=lambda: Family(""))  # its class in transformers 4


@dataclass(frozen=True)
class Emission:
    """Text to paste for one target, and what the target loses or was not asked."""

    target: str
    text: str
    lost: tuple[str, ...]


@dataclass(frozen=True)
class Emissions(Result):
    """The wanted spec as text for several targets; ``tables["targets"]`` has a row for each."""

    wanted: Wanted
    targets: tuple[Emission, ...]
    rows: Mapping[str, Rows]
    note: str = ""  # a factor that was raised, a length that the file does not have
    replaced: str = ""  # the file's own scaling that --method replaced


def emit(
    file: str = "", *, context: int, model: str = "", method: str = "", target: str = "portable"
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
    if document.kind == "gguf":
        raise InputError("--from wants a config.json: a GGUF file is scaled by flags, see audit")
    whole = document.config
    (prefix, text), specs = language_part(whole), specs_of(file or model, whole)
    nest, (main, spec) = prefix.split(".")[:-1], next(iter(specs.items()))
    if context < spec.trained_len:
        raise InputError(f"--context {context} is below the trained length, {spec.trained_len}")
    name, block = rope_block(text)
    layers = loaded_block(text) if main != "all" else {}
    block = layers.get(main, block)
    about: dict[str, Any] = {"context": context, "main": main, "layers": layers}
    about["beside"] = {k: v for k, v in specs.items() if k != main}
    keys = (*BLOCKS, "head_dim", SHARE, *BETAS, *VLLM_LENGTHS)
    about["present"] = tuple(name for name in keys if text.get(name) or block.get(name))
    about["older"] = family_of(str(text.get("model_type")), READERS["transformers-4.57"].release)
    scaled, note, replaced = not isinstance(spec.scaling, scalings.Unscaled), "", ""
    if scaled and not method:
        own, note = raised(spec, block, context)
        extended = bool(note) and own["rope_type"] in RAISED
        if note and not extended:
            about |= {"context": spec.length, "beyond": context}
            context = spec.length
        # Dynamic scaling starts at this length, and longrope's factor comes from it.
        fixed = isinstance(spec.scaling, scalings.DynamicNtk | scalings.LongRope)
        longest = spec.length if fixed else max(spec.length, context)
        kept: Fragment = {**own, "rope_theta": spec.base}
        patched: Fragment = {**text, MAXIMUM: longest, name: kept}
        if layers:  # as transformers 5 has them
            patched |= {"rope_scaling": None, "rope_parameters": {**layers, main: kept}}
        spec = registry.reference(file, laid_over(whole, patched, nest))
        about |= {"own": own, "raised": extended, "claimed_len": longest}
    else:
        kind = (str(text.get("model_type")), spec.trained_len)
        if kind in TRAINED and context > spec.trained_len and not scaled:
            spec = replace(spec, trained_len=TRAINED[kind])
            note = f"{kind[0]} was trained with {spec.trained_len} of the {kind[1]} tokens allowed"
        factor = context / spec.trained_len
        scaling = parse_scaling(method or ("yarn" if factor > 1 else "unscaled"), factor)
        if isinstance(scaling, scalings.Yarn | scalings.PositionInterpolation | scalings.Llama3):
            reach = round(scaling.factor * spec.trained_len)
            if reach < context:
                raise InputError(f"{scaling.label} reaches {reach} tokens, not {context}")
        about |= {"scaling": scaling, "claimed_len": context, "softmax_factor": 1.0}
        about["attention_factor"] = scaling.plan(spec.geometry, context).attention_factor
        about["axes"] = {key: value for key, value in block.items() if key.startswith("mrope_")}
    wanted = Wanted(**{**vars(spec), **about})
    if scaled and method and wanted.scaling != spec.scaling:
        replaced = f"the file's own {spec.method} is replaced by {wanted.method}"
    elif model and (own_method := model_named(model).method) not in ("unscaled", wanted.method):
        replaced = f"{model}'s own {own_method} is replaced by {wanted.method}"
    if document.encoding:
        first = f"transformers refuses {document.encoding}: save the file as plain UTF-8"
        note = "; ".join(filter(None, (first, note)))
    names = list(TARGETS) if target == "all" else split_list(target) or [target]
    done = tuple(emitted(name, wanted, whole, nest) for name in names)
    rows = [{"target": e.target, "text": e.text, "lost": list(e.lost)} for e in done]
    return Emissions(wanted, done, {"targets": rows}, note, replaced)


def from_name(name: str) -> Mapping[str, Any]:
    """Return a file of the unscaled model."""
    model = model_named(name)
    sizes = {"head_dim": model.head_dim, "hidden_size": model.head_dim, "num_attention_heads": 1}
    values = {**sizes, MAXIMUM: model.trained_len, "rope_theta": model.base}
    share = {} if model.rotated == model.head_dim else {SHARE: model.rotated / model.head_dim}
    return {"model_type": model.model_type, **values, **share}


def specs_of(name: str, config: Mapping[str, Any]) -> Mapping[str, RopeSpec]:
    """Return the reference's specs, the main one first."""
    reading = registry.reading_of(name, config)
    spec, ours = reading.layers[reading.label], reading.runtime.name == registry.REFERENCE
    if not ours and isinstance(spec.scaling, scalings.LongRope):  # vLLM allows less by itself
        spec = replace(spec, claimed_len=language_part(config)[1].get(MAXIMUM))
    scaled = round(getattr(spec.scaling, "factor", 1.0) * spec.length)
    if scaled in map(language_part(config)[1].get, VLLM_LENGTHS):  # the maximum is before it
        spec = replace(spec, claimed_len=scaled)
    # Another runtime's layer types are not the reference's.
    main = {reading.label: spec}
    return {**main, **reading.layers, **main} if ours else {"all": spec}


def laid_over(config: Mapping[str, Any], patch: Fragment, nest: Sequence[str]) -> Fragment:
    """Return a file with other values of some keys of its part ``nest``."""
    inner = {nest[0]: laid_over(config[nest[0]], patch, nest[1:])} if nest else patch
    return {**config, **inner}


def raised(spec: RopeSpec, block: Mapping[str, Any], context: int) -> tuple[Fragment, str]:
    """Return the file's own block, its factor raised if the context needs it, and a note then."""
    own = {k: v for k, v in block.items() if k not in ("type", "rope_type", "rope_theta")}
    kind = block.get("rope_type") or block.get("type")
    own = {"rope_type": "longrope" if isinstance(spec.scaling, scalings.LongRope) else kind, **own}
    factor, limit = getattr(spec.scaling, "factor", 1.0), spec.length
    reach = round(factor * spec.trained_len)
    if isinstance(spec.scaling, scalings.Yarn | scalings.Llama3):
        limit = max(limit, reach)
    if context <= limit or isinstance(spec.scaling, scalings.DynamicNtk):
        return own, ""
    limit = reach if isinstance(spec.scaling, scalings.Yarn) else limit  # not the file's maximum
    reach = f"the file's own {kind} reaches {limit} tokens"
    if kind not in RAISED:
        return own, f"{reach}, and has no factor to raise; --method replaces it"
    own["factor"] = factor * context / limit
    note = f"{reach}: its factor is raised from {factor:g} to {own['factor']:g}"
    if (given := own.get("attention_factor")) is None:
        return own, note
    if not math.isclose(given, magnitude(factor), rel_tol=1e-6):
        return own, f"{note}, its attention_factor stays {given:g}"
    own["attention_factor"] = magnitude(own["factor"])  # as without the key
    follows = f"{given:g}, the default for {factor:g}, to {own['attention_factor']:g}"
    return own, f"{note}, its attention_factor from {follows}"


def emitted(
    target: str, wanted: Wanted, model: Mapping[str, Any], nest: Sequence[str] = ()
) -> Emission:
    """Return the text for a target, to be laid over the part ``nest`` of a model's file."""
    chosen, written = TARGETS[known("target", target, TARGETS)], wanted
    if type(wanted.scaling) is scalings.NtkAware and not wanted.own:
        # Only Hunyuan's own block has a name for NTK-aware; elsewhere it is another base.
        base = scalings.ntk_base(wanted.geometry, wanted.scaling.factor)
        written = replace(wanted, base=base, scaling=scalings.Unscaled())
    fragment, flags = chosen.config(written), chosen.flags(written)
    if chosen.replaces and "rope_scaling" in written.present:
        fragment = {"rope_scaling": None, **fragment}
    if flags and written.base != wanted.base:
        flags["rope_freq_base"] = written.base
    patch, given = fragment, "{json}" in chosen.text  # as a flag
    if given and is_moved(model):
        nest = ("text_config",)
    for part in reversed(nest):
        patch = {part: patch}
    lost = [f"it cannot reach {wanted.beyond} tokens"] if wanted.beyond else []
    for name in chosen.runtimes:
        config = Flags(overrides={name: patch}).applied(name, model) if given else None
        config = config or laid_over(model, fragment, nest)
        reading = registry.read(READERS[name], config, flags)
        if (main := reading.main) is None:
            word = "refuses it" if reading.outcome == "refused" else "was not asked"
            lost.append(f"{name} {word}: {reading.problem}")
            continue
        own = isinstance(main.scaling, scalings.LongRope) and "--max-model-len" in chosen.text
        if own or (given and main.length > wanted.length):
            main = replace(main, claimed_len=None)  # the flag is the length
        lost += [f"{name}: {word}" for word in differences(main, wanted)]
        for label, other in wanted.beside.items():
            got = replace(reading.layers.get(label, main), claimed_len=None)
            lost += [f"{name}: {label}: {word}" for word in differences(got, other)]
    if nest and chosen.flat:
        lost.append(f"it sets no keys inside {nest[0]}")
    plain = {name: parameter_text(value) for name, value in flags.items()}
    # -c has a place of its own in the text.
    words = (f" --{n.replace('_', '-')} {word}" for n, word in plain.items() if n != "ctx_size")
    forms = {"json": json.dumps(patch), "lines": json.dumps(patch, indent=2)}
    text = chosen.text.format(length=wanted.context, flags="".join(words), **forms, **plain)
    return Emission(target, text, tuple(lost))


def differences(got: RopeSpec, wanted: RopeSpec) -> list[str]:
    """Name differences in width, frequencies by length, factor on the logits, claimed length."""
    if got.rotary_dim != wanted.rotary_dim:
        return [f"rotary_dim {got.rotary_dim}, not {wanted.rotary_dim}"]
    words, lengths = [], (64, wanted.trained_len, wanted.length, 2 * wanted.length)
    # Runtimes compute in float32, so smaller differences mean nothing.
    tables = ((got.inv_freq(n), wanted.inv_freq(n)) for n in lengths)
    if not all(np.allclose(*pair, rtol=1e-6, atol=0) for pair in tables):
        other = got.scaling.name == wanted.scaling.name and got.trained_len != wanted.trained_len
        start = f" from {got.trained_len} tokens" if other else ""
        base = f" at base {got.base:g}" if got.base != wanted.base else ""
        words.append(f"frequencies: {got.method}{start}{base} instead of {wanted.method}")
    if not math.isclose(got.logit_multiplier, wanted.logit_multiplier, rel_tol=1e-6):
        words.append(f"logits x {got.logit_multiplier:.6g}, not {wanted.logit_multiplier:.6g}")
    if got.claimed_len is not None and got.claimed_len != wanted.length:
        words.append(f"length {got.claimed_len}, not {wanted.length}")
    return words


def block_of(spec: Wanted) -> Fragment:
    """Return the scaling block, with the axes of a model of images."""
    block = scaling_block(spec)
    return {**(block or {"rope_type": "default"}), **spec.axes} if spec.axes else block


def scaling_block(spec: Wanted) -> Fragment:
    """Return the scaling block under the one name of the type that all runtimes know."""
    if own := spec.own:
        return {**own, ORIGINAL: spec.trained_len} if own["rope_type"] in SCALED else dict(own)
    scaling, original = spec.scaling, {ORIGINAL: spec.trained_len}
    if isinstance(scaling, scalings.Unscaled):
        return {}
    if isinstance(scaling, scalings.PositionInterpolation | scalings.DynamicNtk):
        kind = "linear" if isinstance(scaling, scalings.PositionInterpolation) else "dynamic"
        return {"rope_type": kind, "factor": float(scaling.factor)}
    if isinstance(scaling, scalings.Llama3):
        bands = {name: float(getattr(scaling, name)) for name in BANDS}
        return {"rope_type": "llama3", **bands, **original}
    # attention_factor is written if it is not what the factor alone would give.
    same = math.isclose(spec.attention_factor, usual_attention(spec), rel_tol=1e-12)
    attention = {} if same else {"attention_factor": spec.attention_factor}
    if isinstance(scaling, scalings.Yarn):
        block: Fragment = {"rope_type": "yarn", "factor": float(scaling.factor), **original}
        # Keys at the default that all runtimes share are left out.
        for name, usual in {**BETAS, "truncate": True}.items():
            if (value := getattr(scaling, name)) != usual:
                block[name] = value if isinstance(value, bool) else float(value)
        return {**block, **attention}
    if isinstance(scaling, scalings.LongRope):
        long = list(scaling.long_factor)
        short = list(scaling.short_factor) or [1.0] * len(long)
        lists = {"short_factor": short, "long_factor": long, "factor": float(scaling.factor)}
        return {"rope_type": "longrope", **lists, **original, **attention}
    raise InputError(f"no configuration has a name for {scaling.name}; one with a name is yarn")


def usual_attention(spec: RopeSpec) -> float:
    factor = getattr(spec.scaling, "factor", 1.0)
    longrope = isinstance(spec.scaling, scalings.LongRope)
    return longrope_attention(factor, spec.trained_len) if longrope else magnitude(factor)


def start_and_share(spec: Wanted) -> tuple[Fragment, Fragment]:
    """Return the length, and partial_rotary_factor unless the whole head rotates."""
    # Dynamic scaling starts at max_position_embeddings, so that it has to be the trained length.
    start = spec.trained_len if isinstance(spec.scaling, scalings.DynamicNtk) else spec.length
    lengths = dict.fromkeys((MAXIMUM, *(n for n in VLLM_LENGTHS if n in spec.present)), start)
    # A share that the file has would stay in the block of a server.
    silent = spec.rotary_dim == spec.head_dim and (spec.own or SHARE not in spec.present)
    share = {} if silent else {SHARE: spec.rotary_dim / spec.head_dim}
    # Some classes build scaled tables from a head_dim alone.
    lacks = spec.older.refuses_without_head_dim and "head_dim" not in spec.present
    head = {"head_dim": spec.head_dim} if lacks and block_of(spec) else {}
    return {**lengths, **head}, share


def version4(spec: Wanted) -> Fragment:
    """Return rope_theta and rope_scaling, the type under both of its names."""
    block, (start, share) = block_of(spec), start_and_share(spec)
    block = block or ({"rope_type": "default"} if spec.older.needs_block else {})
    if block:
        block = {"rope_type": block["rope_type"], "type": block["rope_type"], **block}
        if "type" in (keys := spec.older.block_keys):  # and no others
            block = {key: block[key] for key in keys if key in block}
    # Of longrope, transformers 4 reads the original length at top level only.
    original = {ORIGINAL: spec.trained_len} if isinstance(spec.scaling, scalings.LongRope) else {}
    emptied = {"rope_parameters": None} if "rope_parameters" in spec.present else {}
    head = {**start, "rope_theta": spec.base, **original, **share, **emptied}
    named, blocks = spec.older.layer_base_keys, spec.layers
    head |= {key: blocks[label]["rope_theta"] for label, key in named.items() if label in blocks}
    # The main one last: some classes have one key for all.
    head |= {named[spec.main]: spec.base} if spec.main in named else {}
    return {**head, "rope_scaling": block or None}


def version5(spec: Wanted) -> Fragment:
    """Return rope_parameters, for a configuration that was read already."""
    block, (start, share) = block_of(spec) or {"rope_type": "default"}, start_and_share(spec)
    block = {"rope_theta": spec.base, **block, **share}
    layers = {**spec.layers, spec.main: block} if spec.layers else block
    return {**start, "rope_parameters": layers}


def vllm(spec: Wanted) -> Fragment:
    """Return version 5 with the length before the factor where the server multiplies by it."""
    fragment = version5(spec)
    multiplied = scalings.PositionInterpolation | scalings.DynamicNtk
    # It leaves Gemma 3's lengths alone.
    if isinstance(spec.scaling, multiplied) and "gemma3" not in spec.older.name:
        fragment[MAXIMUM] = round(spec.length / spec.scaling.factor)
    return fragment


def sglang(spec: Wanted) -> Fragment:
    """Return vLLM's form as rope_scaling, the magnitude as a multiplier of SGLang's own."""
    if spec.main == "compress":  # it loads DeepSeek-V4 as V3, with one block
        spec = replace(spec, layers={}, base=spec.beside["main"].base)
    fragment = version5(spec) if spec.layers else vllm(spec)
    name = "rope_parameters" if spec.layers else "rope_scaling"
    outer = fragment.pop("rope_parameters")
    block = outer[spec.main] if spec.layers else outer
    if (wanted := block.pop("attention_factor", None)) and block["rope_type"] == "yarn":
        block["attn_factor"] = wanted / magnitude(block["factor"])
    return {**fragment, name: outer}


def llamafactory(spec: Wanted) -> dict[str, Any]:
    kind = None if spec.own and not spec.raised else block_of(spec).get("rope_type")
    return {"rope_scaling": kind if kind in LLAMAFACTORY else "null", "cutoff_len": spec.context}


def llamacpp(spec: Wanted) -> dict[str, Any]:
    scaling, flags = spec.scaling, dict[str, Any](ctx_size=spec.context)
    if spec.own and not spec.raised:
        return flags  # the converter writes the file's own scaling
    if isinstance(scaling, scalings.PositionInterpolation):
        return flags | {"rope_scaling": "linear", "rope_scale": scaling.factor}
    if isinstance(scaling, scalings.Yarn):
        flags |= {"rope_scaling": "yarn", "rope_scale": scaling.factor}
        flags["yarn_orig_ctx"] = spec.trained_len
        for name, usual in BETAS.items():  # left out at the default, unless the file has a value
            if name in spec.present or getattr(scaling, name) != usual:
                flags[f"yarn_{name}"] = getattr(scaling, name)
    return flags


def koboldcpp(spec: Wanted) -> dict[str, Any]:
    # With one of the two, koboldcpp picks by a rule of its own.
    flags = {"ctx_size": spec.context, "rope_freq_scale": 1.0, "rope_freq_base": spec.base}
    if isinstance(spec.scaling, scalings.PositionInterpolation):
        return {**flags, "rope_freq_scale": 1 / spec.scaling.factor, "rope_scaling": "linear"}
    return flags


@dataclass(frozen=True)
class Target:
    """The runtimes that read a text back, its settings, and the text with fields in braces."""

    runtimes: Sequence[str]
    config: Callable[[Wanted], Fragment] = lambda spec: {}  # flags come on top of the file
    text: str = "{lines}"  # JSON over several lines; or {json}, {length}, {flags}, or any flag
    flags: Callable[[Wanted], dict[str, Any]] = lambda spec: {}
    replaces: bool = False  # empties rope_scaling, which would replace rope_parameters
    flat: bool = False  # sets keys of the whole model only


def target_of(row: dict[str, Any]) -> Target:
    """Return a target of targets.toml, with the functions of this module that it names."""
    others = (n for n in registry.RUNTIMES if not n.startswith(tuple(row.get("without", ()))))
    makers: Fragment = {name: globals()[row[name]] for name in ("config", "flags") if name in row}
    about: Fragment = {"runtimes": tuple(others), **row, **makers}
    return Target(**{name: value for name, value in about.items() if name != "without"})


TARGETS = {name: target_of(row) for name, row in table("targets").items()}
