"""Rules of an audit about the entries of a file.

They may contradict each other, do nothing, or be missing.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from ropelab.audit.audit_case import AuditCase, reads_block
from ropelab.audit.causes import (
    describe_phase,
    find_length_to_claim,
    is_plain,
    list_scaled_by_ratio,
    list_unscaled_by_ratio,
)
from ropelab.audit.finding import AuditFinding, make_finding
from ropelab.audit.fixes import advise_base, advise_length
from ropelab.readers.document import (
    ARCHITECTURES_WITHOUT_BASE,
    ROTATED_ARCHITECTURES,
)
from ropelab.readers.families import FLAT_ARCHITECTURES, find_family
from ropelab.readers.keys import (
    BLOCKS,
    explain_key,
    find_misspelt_key,
    find_nearest_key,
)
from ropelab.readers.scaling_types import SAME_TYPES
from ropelab.readers.servers import VLLM_LENGTHS
from ropelab.readers.spec import shorten_value
from ropelab.readers.trace import (
    ORIGINAL,
    OUTSIDE,
    find_language_part,
    find_value,
    list_blocks,
)
from ropelab.runs.rows import group_pairs
from ropelab.runs.sentences import write_number

# The most repeated keys that a finding names.
MOST_NAMED_KEYS = 5


def show_key(path: str) -> str:
    """Return a key as text in which no blank and no foreign letter is overlooked."""
    if path.isascii() and not re.search(r"\s", path):
        return path
    return ascii(path)


def find_contradictions(case: AuditCase) -> Iterator[AuditFinding]:
    """Find keys that contradict each other, or that few or no runtimes read."""
    yield from find_multiplied_lengths(case)
    yield from find_unknown_keys(case)
    yield from find_contradicting_factor(case)


def find_multiplied_lengths(case: AuditCase) -> Iterator[AuditFinding]:
    """Find runtimes that multiply a length by the factor, though it may be the length
    after scaling already.
    """
    _, language_part = find_language_part(case.document.config)
    stated_lengths = [language_part.get(key) for key in VLLM_LENGTHS]

    # The names of the runtimes, by the length that each claims and the length that it
    # multiplied.
    pairs = []
    for name, spec in case.specs:
        claimed = spec.claimed_len
        multiplied_len = spec.multiplied_len
        # Whoever gives a server a length has chosen it.
        if not claimed or not multiplied_len or name in case.flags.lengths:
            continue
        # If the file states the product, too, the multiplication is right.
        if claimed > multiplied_len and claimed not in stated_lengths:
            pairs.append(((claimed, multiplied_len), name))
    for (claimed, multiplied_len), names in group_pairs(pairs).items():
        about = {"claimed": claimed, "length": multiplied_len}
        yield make_finding("E07", names=names, **about)


def find_unknown_keys(case: AuditCase) -> Iterator[AuditFinding]:
    """Find keys that look like a known key, and keys that only one runtime reads."""
    default_block = find_family(case.reference.model_type).rope_block
    for use in case.reference.keys:
        *parents, key = use.path.split(".")
        # If the class of transformers itself puts a key into the block, the key is not
        # a mistake of the file.
        if parents and key in default_block:
            continue
        is_read = use.status in ("used", "translated")
        is_known = bool(explain_key(use.path)) or is_read
        nearest = "" if is_known else find_meant_key(use.path)
        if nearest:
            yield make_finding("W01", "unknown", path=show_key(use.path), close=nearest)
        elif use.path.endswith(".attn_factor") and case.document.kind != "gguf":
            yield make_finding("W01", "one", path=use.path)


def find_meant_key(path: str) -> str:
    """Return the known key that an unknown key may be meant for; empty: none.

    A longer name that contains the name of a known key, such as rope_interleave_factor,
    is a separate key, and not a misspelling. If it only adds a number, as rope_theta_2
    does, the known key may be meant.
    """
    *_, key = path.split(".")
    nearest = find_nearest_key(path)
    is_numbered = re.fullmatch(rf"{re.escape(nearest)}_?\d+", key) is not None
    is_longer = nearest in path and not find_misspelt_key(key)
    if is_longer and not is_numbered:
        return ""
    return nearest


def find_contradicting_factor(case: AuditCase) -> Iterator[AuditFinding]:
    """Find a factor in the file that is not the ratio of the lengths in the file.

    Some runtimes take this factor, and other runtimes compute the ratio in its place.
    """
    length = find_length_to_claim(case)
    # Where runtimes do not scale for this reason, E08 names them, with the same advice.
    if length is None or list_unscaled_by_ratio(case):
        return

    original = case.block[ORIGINAL]
    by_ratio = list_scaled_by_ratio(case)
    claims = sorted({spec.claimed_len for _, spec in case.specs if spec.claimed_len})
    yield make_finding(
        "W02",
        factor=case.block["factor"],
        maximum=case.maximum,
        original=original,
        ratio=case.maximum / original,
        who=", ".join(by_ratio) or "none of these runtimes",
        claims=" or ".join(map(str, claims)),
        off=describe_phase(case, by_ratio),
        fix=advise_length(case, length),
    )


def check_file(case: AuditCase) -> Iterator[AuditFinding]:
    """Find entries that do nothing or are missing, and a limit of the tokenizer."""
    outside_paths = [use.path for use in case.reference.keys if use.note == OUTSIDE]
    if outside_paths:
        yield make_finding(
            "W11", "outside", paths=", ".join(outside_paths), part=case.block_path
        )
    yield from find_unread_values(case, outside_paths)
    yield from find_second_block(case)
    yield from find_keys_beside(case)
    yield from find_untyped_block(case)

    if case.document.repeated:
        yield make_finding("W19", names=case.document.repeated[:MOST_NAMED_KEYS])
    if case.document.kind == "gguf":
        yield from check_gguf_fields(case.document.config, case.flags.settings)

    limit = case.document.tokenizer_length
    claimed = case.spec.claimed_len
    # Whoever asks for fewer tokens needs no more.
    needed = min(case.requested_length or claimed, claimed) if claimed else 0
    if limit and claimed and limit < needed:
        yield make_finding("W14", limit=limit, claimed=claimed)


def find_untyped_block(case: AuditCase) -> Iterator[AuditFinding]:
    """Find a factor in a block without a type, which scales nothing."""
    if case.scaling_type or case.block.get("factor") in (None, 1):
        return
    name = case.block_path
    unscaled = [runtime for runtime, spec in case.specs if is_plain(spec)]
    if unscaled:
        yield make_finding("W11", "untyped", path=f"{name}.factor", names=unscaled)


def find_second_block(case: AuditCase) -> Iterator[AuditFinding]:
    """Find two rope blocks that contradict each other, and who reads which."""
    prefix, language_part = find_language_part(case.document.config)
    names = list_blocks(language_part)
    if len(names) < 2:
        return
    keys = list_contradictions(*(language_part[name] for name in names))
    if not keys:
        return

    readers = {}
    for name in names:
        readers[name] = [
            reading.runtime.name
            for reading in case.readings
            if reading.layers and reads_block(reading, f"{prefix}{name}")
        ]
    (other_name,) = {*names} - {case.block_name}
    # The block of the reference comes first.
    parts = []
    for name in (case.block_name, other_name):
        parts.append(f"{name} is read by {', '.join(readers[name]) or 'nobody'}")
    yield make_finding(
        "W20",
        blocks=" and ".join(names),
        keys=", ".join(keys),
        readers="; ".join(parts),
    )


def list_contradictions(
    block: Mapping[str, Any], other: Mapping[str, Any]
) -> list[str]:
    """Return the keys that two rope blocks both have, with different values.

    The type has two names, and some of its values mean the same.
    """
    keys = [
        key
        for key in block
        if key in other
        and key not in ("type", "rope_type")
        and block[key] != other[key]
    ]
    one_type = block.get("rope_type") or block.get("type")
    other_type = other.get("rope_type") or other.get("type")
    mean_the_same = (
        one_type == other_type
        or (one_type, other_type) in SAME_TYPES
        or (other_type, one_type) in SAME_TYPES
    )
    if one_type and other_type and not mean_the_same:
        keys.insert(0, "rope_type")
    return keys


def find_keys_beside(case: AuditCase) -> Iterator[AuditFinding]:
    """Find keys beside the language part of a file that contradict this part.

    The class of the language model does not look at these keys, so that a scaling there
    is silently without effect.
    """
    prefix, language_part = find_language_part(case.document.config)
    architectures = str(case.document.config.get("architectures"))
    is_read_flat = any(
        name in architectures for names in FLAT_ARCHITECTURES.values() for name in names
    )
    if is_read_flat:
        return

    paths_beside = []
    part = case.document.config
    # The dicts around the language model, from the outermost on.
    names = prefix.removesuffix(".").split(".") if prefix else []
    for depth, name in enumerate(names):
        path = "".join(f"{each}." for each in names[:depth])
        for key in (*BLOCKS, "rope_theta", "partial_rotary_factor", ORIGINAL):
            if says_something_else(key, part.get(key), language_part, case):
                paths_beside.append(f"{path}{key}")
        part = part[name]
    if paths_beside:
        part_name = prefix.removesuffix(".")
        yield make_finding("W11", "beside", names=paths_beside, part=part_name)


def says_something_else(
    key: str, value: Any, language_part: Mapping[str, Any], case: AuditCase
) -> bool:
    """Return True if a key beside the language model contradicts what is read from it.

    Many files repeat keys of the language model, or have empty ones.
    """
    if not value or value == language_part.get(key):
        return False
    if key == "rope_theta":
        return bool(value != case.spec.base)
    if key not in BLOCKS:
        return True

    if not isinstance(value, Mapping):
        return False
    scaling_type = value.get("rope_type", value.get("type"))
    is_repeated = any(
        isinstance(language_part.get(name), Mapping)
        and value.items() <= language_part[name].items()
        for name in BLOCKS
    )
    has_other_base = value.get("rope_theta", case.spec.base) != case.spec.base
    is_scaled = scaling_type not in (None, "default", "mrope") or "factor" in value
    return not is_repeated and (has_other_base or is_scaled)


def check_gguf_fields(
    fields: Mapping[str, Any], flags: Mapping[str, Any]
) -> Iterator[AuditFinding]:
    """Find fields of a GGUF file that are missing, or that llama.cpp does not read.

    ``flags``: the settings of its flags, which take the place of fields.
    """
    architecture = fields["model_type"]
    has_base = "rope.freq_base" in fields or "rope_freq_base" in flags
    if not has_base and architecture not in ARCHITECTURES_WITHOUT_BASE:
        yield make_finding("W12", "base")
    has_type = "rope.scaling.type" in fields or "rope_scaling" in flags
    if "rope.scaling.factor" in fields and not has_type:
        yield make_finding("W12", "untyped")
    is_scaled = fields.get("rope.scaling.type") in ("yarn", "linear")
    factors = {"rope.scaling.factor", "rope.scale_linear"} & fields.keys()
    factor_flags = {"rope_scale", "rope_freq_scale"} & flags.keys()
    if is_scaled and not factors and not factor_flags:
        yield make_finding("W12", "factor", kind=fields["rope.scaling.type"])
    if "rope.scaling.yarn_attn_factor" in fields:
        yield make_finding("W12", "dead")
    if architecture not in ROTATED_ARCHITECTURES:
        yield make_finding("W12", "architecture", name=shorten_value(architecture))


def find_unread_values(
    case: AuditCase, outside_paths: Collection[str]
) -> Iterator[AuditFinding]:
    """Find values of the base and the width that no runtime takes.

    ``outside_paths``: the keys that are reported already, since they are outside the
    dicts of the layer types.
    """
    values_in_use = {"rope_theta": case.spec.base, "rotary_dim": case.spec.rotary_dim}
    # The uses of each key by each runtime that reads the file.
    uses = []
    for reading in case.readings:
        if reading.layers:
            uses += [(use.path, use.status) for use in reading.keys]

    for path, statuses in group_pairs(uses).items():
        *_, key = path.split(".")
        if key not in values_in_use or path in outside_paths:
            continue
        is_unread = all(status == "ignored" for status in statuses)
        value_in_use = values_in_use[key]
        value = find_value(case.document.config, path)
        if not is_unread or not value_in_use or value in (None, value_in_use):
            continue
        fix = ""
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        # The base of layers with a window is not that of all layers.
        is_of_window = ".sliding_attention." in path
        if key == "rope_theta" and is_number and not is_of_window:
            fix = advise_base(case, value, [name for name, _ in case.specs])
        yield make_finding(
            "W11",
            "misplaced" if fix else "unread",
            path=path,
            value=shorten_value(value),
            own=write_number(value_in_use),
            fix=fix,
        )
