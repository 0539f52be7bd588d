"""The inverse of the readers: text that makes a runtime compute a wanted scaling.

A target is one or several runtimes that take the same text: keys for a config.json, or
flags. Every text is read back by our readers of these runtimes, and every difference from
the wanted rotation is named as a loss.
"""

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from ropelab.audit.sources import read_source
from ropelab.audit.targets import TARGETS, Target, make_newer_block
from ropelab.audit.wanted import (
    Fragment,
    ModelFile,
    WantedRotation,
    choose_scaling,
    keep_scaling,
    make_file,
    merge_into_part,
    read_model_file,
)
from ropelab.math import scaling as scalings
from ropelab.math.models import find_model
from ropelab.math.scaling.plan import write_parameter
from ropelab.readers import registry
from ropelab.readers.document import Document
from ropelab.readers.families import TRAINED_LENGTHS
from ropelab.readers.flags import Flags, is_moved_into_part
from ropelab.readers.servers import VLLM_LENGTHS
from ropelab.readers.spec import RopeSpec, check_length
from ropelab.readers.trace import MAXIMUM
from ropelab.runs.arguments import check_texts, read_path
from ropelab.runs.errors import InputError, check_known
from ropelab.runs.rows import Result, Rows
from ropelab.runs.sentences import shorten_numbers
from ropelab.runs.spelling import split_list

# Keys that state a length.
LENGTHS = (MAXIMUM, *VLLM_LENGTHS)
# Flags that state a length, and leave the rotation as it is.
LENGTH_FLAGS = {"ctx_size", "cutoff_len"}
READERS = registry.RUNTIMES | registry.TRAINERS


@dataclass(frozen=True)
class Emission:
    """Text to paste for one target, and what the target loses."""

    target: str
    text: str
    # Sentences about what the target does not do, although the user wants it.
    lost: tuple[str, ...]
    # True if the text has keys for the file, or other flags than those that set a
    # length.
    changes: bool = True
    # Remarks that are not losses: runtimes that do not know the model, and what
    # runtimes do with a file that needs no change.
    remarks: tuple[str, ...] = ()
    # The keys of the text that are put into the file of the model, which all runtimes
    # read; empty if the text is flags.
    keys: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Emissions(Result):
    """The text for each target, of which the table `targets` has a row."""

    rotation: WantedRotation
    targets: tuple[Emission, ...]
    rows: Mapping[str, Rows]
    # A sentence about the text: for example, that a factor was raised.
    note: str = ""
    # A sentence about --method: that it replaced the file's own scaling, or that layers
    # needed no scaling. Empty: there is nothing to say.
    replaced: str = ""


def emit(
    file: str | PathLike[str] = "",
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
    file = read_path("file", file)
    check_length(context, "context")
    check_texts(model=model, method=method, target=target)
    # A path in place of a name is taken for the file. `Path.exists` raises OSError for a
    # name that is too long.
    if model and os.path.exists(model):  # noqa: PTH110
        file = model
        model = ""
    if bool(file) == bool(model):
        raise InputError("give either --from FILE or --model NAME")
    if file:
        document = read_source(file)
    else:
        document = Document(model, "config", make_file(find_model(model)))
    if document.kind != "config":
        raise InputError(
            "--from wants a config.json; a GGUF file or params.json is scaled by flags,"
            " see audit"
        )

    name = file or model
    source, spec = read_model_file(name, document.config)
    is_scaled = not isinstance(spec.scaling, scalings.Unscaled)
    if is_scaled and not method:
        rotation, note = keep_scaling(name, source, spec, context)
    else:
        rotation, note = choose_scaling(source, spec, context, method)
    names = list(TARGETS) if target == "all" else split_list(target) or [target]
    # A target that is named twice is written once.
    emissions = tuple(write_text(each, rotation) for each in dict.fromkeys(names))
    if source.unscalable and not method:
        unscaled, _ = choose_scaling(source, spec, context, "unscaled")
        emissions = tuple(choose_plain(each, unscaled, spec) for each in emissions)

    notes = []
    if document.encoding:
        refused = f"transformers refuses {document.encoding}"
        notes.append(f"{refused}: save the file as plain UTF-8")
    notes += [note, note_on_window(rotation, spec)]
    is_change_needed = any(each.changes or each.lost for each in emissions)
    if context <= spec.length and not is_change_needed:
        notes.append(f"nothing to change: {name} reaches {spec.length} tokens as it is")

    rows = []
    for each in emissions:
        row = {
            "target": each.target,
            "text": each.text,
            "lost": [*each.lost],
            "remarks": [*each.remarks],
        }
        rows.append(row)
    return Emissions(
        rotation,
        emissions,
        {"targets": rows},
        note=join_notes(notes),
        replaced=note_on_method(rotation, spec) if method else "",
    )


def choose_plain(
    scaled: Emission, unscaled: WantedRotation, spec: RopeSpec
) -> Emission:
    """Return the text for a target whose runtime runs a class that reads no scaling.

    If the target runs a class like this, the text has only the length. For any other
    target the text is ``scaled``.
    """
    runtimes = TARGETS[scaled.target].runtimes
    runs_class = any(
        name.startswith("transformers") or READERS[name].runs_transformers
        for name in runtimes
    )
    if not runs_class or not scaled.lost or unscaled.context <= spec.trained_len:
        return scaled

    emission = write_text(scaled.target, unscaled)
    model_type = unscaled.source.unscalable
    reason = (
        f"the class of '{model_type}' in transformers rotates by numbers in its code and reads"
        f" no rope_scaling: positions from {spec.trained_len} on cannot be scaled by a"
        " file"
    )
    return replace(emission, lost=(reason, *emission.lost))


def join_notes(notes: Sequence[str]) -> str:
    """Join the notes that are not empty."""
    return "; ".join(note for note in notes if note)


def note_on_method(rotation: WantedRotation, spec: RopeSpec) -> str:
    """Say what a method replaces, and which layers would not need it."""
    if rotation.scaling == spec.scaling:
        return ""

    method_of_file = shorten_numbers(spec.method)
    new = shorten_numbers(rotation.method)
    notes = []
    if rotation.source.unscalable:
        model_type = rotation.source.unscalable
        notes.append(
            f"the class of '{model_type}' in transformers reads no rope_scaling"
        )
    if not isinstance(spec.scaling, scalings.Unscaled):
        notes.append(f"the file's own {method_of_file} is replaced by {new}")
    window = rotation.source.window
    if window is not None:
        notes.append(
            f"{new} changes layers that see {window} tokens at any length: the length"
            " alone is enough"
        )
    return join_notes(notes)


def read_trained_length(file: str, model: str) -> int:
    """Return the length from which a file or a known model is scaled, in tokens."""
    if model and not Path(model).exists():
        return find_model(model).trained_len

    source, spec = read_model_file(file or model, read_source(file or model).config)
    type_and_length = (str(source.language_part.get("model_type")), spec.trained_len)
    return TRAINED_LENGTHS.get(type_and_length, spec.trained_len)


def note_on_window(rotation: WantedRotation, spec: RopeSpec) -> str:
    """Say why a longer context needs no scaling where rotating layers have a window."""
    window = rotation.source.window
    if window is None or rotation.context <= spec.length:
        return ""
    if rotation.scaling != spec.scaling:
        return ""
    return (
        f"the layers that rotate see {window} tokens at any length, and the others have"
        " no positions: a longer context needs the length alone"
    )


def write_text(
    target: str, rotation: WantedRotation, runtimes: Sequence[str] = ()
) -> Emission:
    """Return the text that makes a target compute the wanted rotation.

    Args:
        target: the name of the target.
        rotation: the wanted rotation.
        runtimes: the runtimes that have to read the text; empty: all of the target.
    """
    chosen = TARGETS[check_known("target", target, TARGETS)]
    if runtimes:
        chosen = replace(chosen, runtimes=tuple(runtimes))
    all_keys, all_flags = write_keys_and_flags(chosen, rotation)
    flags = leave_out_flags(chosen, rotation, all_keys, all_flags)
    all_keys = add_newer_block(chosen, rotation, all_keys)
    fragment, losses = leave_out_keys(chosen, rotation, all_keys, flags)
    changes = bool(fragment) or bool(flags.keys() - LENGTH_FLAGS)
    lost = list_lost(chosen, rotation, losses, changes)

    # Runtimes that do not know the model are a loss only if no other runtime reads the
    # text.
    remarks: list[str] = []
    if losses.reading_count:
        remarks += losses.unread
    else:
        lost += losses.unread
    # The file as it is has the wanted rotation, and the text changes nothing. A runtime
    # that differs does so without the text, too, which is no loss as long as another
    # runtime of the target computes what is wanted.
    needs_nothing = (
        rotation.is_released and not rotation.unreached_length and not changes
    )
    if needs_nothing and losses.right_count:
        remarks += lost
        lost = []
    text = fill_template(chosen, rotation, fragment, flags, changes)
    keys = {} if chosen.as_flag else fragment
    return Emission(target, text, tuple(lost), changes, tuple(remarks), keys)


def write_keys_and_flags(
    target: Target, rotation: WantedRotation
) -> tuple[Fragment, dict[str, Any]]:
    """Return all keys and flags that make a target compute the wanted rotation."""
    written = rotation
    if type(rotation.scaling) is scalings.NtkAware and not rotation.own_block:
        # Only Hunyuan's block can name NTK-aware scaling, and Hunyuan's files have it
        # already. For all other models another base gives the same rotation.
        base = scalings.ntk_base(rotation.geometry, rotation.scaling.factor)
        written = replace(rotation, base=base, scaling=scalings.Unscaled())

    fragment = target.write_keys(written)
    flags = target.write_flags(written)
    if target.replaces and "rope_scaling" in rotation.source.present:
        # An older block that stays in the file would replace the new one.
        fragment = {"rope_scaling": None, **fragment}
    if flags and written.base != rotation.base:
        flags["rope_freq_base"] = written.base
    return fragment, flags


def leave_out_flags(
    target: Target,
    rotation: WantedRotation,
    fragment: Fragment,
    flags: dict[str, Any],
) -> dict[str, Any]:
    """Return the flags that the file needs: that of a length alone, if the others change
    nothing.
    """
    if "{flags}" not in target.text:
        return flags
    shorter = {name: flags[name] for name in flags if name in LENGTH_FLAGS}
    losses = find_losses(target, rotation, fragment, flags)
    shorter_losses = find_losses(target, rotation, fragment, shorter)
    new_differences = set(shorter_losses.differing) - set(losses.differing)
    is_silent = shorter_losses.count_silent() > losses.count_silent()
    return flags if new_differences or is_silent else shorter


def leave_out_keys(
    target: Target,
    rotation: WantedRotation,
    fragment: Fragment,
    flags: Mapping[str, Any],
) -> tuple[Fragment, "Losses"]:
    """Return the keys that the file needs, and what runtimes fail to do with these
    keys.

    Keys that the file has already are left out if the shorter text loses nothing more:
    first all such keys, or else all such keys but those of lengths.
    """
    losses = find_losses(target, rotation, fragment, flags)
    keys_of_lengths = {key: value for key, value in fragment.items() if key in LENGTHS}
    for shorter in ({}, keys_of_lengths):
        # Nothing would be left out.
        if len(shorter) == len(fragment):
            continue

        shorter_losses = find_losses(target, rotation, shorter, flags)
        # The shorter text may not leave more runtimes without a rotation.
        if shorter_losses.count_silent() > losses.count_silent():
            continue

        # If the file has the wanted rotation already, a runtime that differs without
        # the keys also differs with the keys.
        new_differences = set(shorter_losses.differing) - set(losses.differing)
        is_no_worse = rotation.is_released and not new_differences
        is_right = not shorter_losses.differing and bool(shorter_losses.reading_count)
        if is_no_worse or is_right:
            return shorter, shorter_losses
    return fragment, losses


def add_newer_block(
    target: Target, rotation: WantedRotation, fragment: Fragment
) -> Fragment:
    """Return the keys with the block under its newer name as well, if that helps.

    Some model files read rope_parameters alone. Elsewhere the older name is enough.
    """
    has_older_name = fragment.get("rope_scaling") and "rope_parameters" not in fragment
    if not has_older_name or target.as_flag:
        return fragment
    losses = find_losses(target, rotation, fragment, {})
    if not losses.differing and not losses.refusing:
        return fragment
    both = {**fragment, "rope_parameters": make_newer_block(rotation)}
    losses_of_both = find_losses(target, rotation, both, {})
    is_better = (
        losses_of_both.right_count > losses.right_count
        and losses_of_both.count_silent() <= losses.count_silent()
    )
    return both if is_better else fragment


def list_lost(
    target: Target, rotation: WantedRotation, losses: "Losses", changes: bool
) -> list[str]:
    """Return sentences about what the text does not do, although the user wants it.

    ``changes``: True if the text has keys, or other flags than that of the length.
    """
    lost = []
    if rotation.unreached_length:
        lost.append(f"it cannot reach {rotation.unreached_length} tokens")
    nest = find_nest(target, rotation.source)
    if nest and nest[0].startswith("decoder") and rotation.method != "unscaled":
        # The text is for the decoder, and the file has an encoder, too.
        lost.append("it leaves the rotation of the encoder as it is")
    lost += [*losses.refusing, *losses.differing]
    if nest and target.flat and changes:
        # A flat target can set keys only at the top of the file.
        lost.append(f"it sets no keys inside {nest[0]}")
    return lost


def fill_template(
    target: Target,
    rotation: WantedRotation,
    fragment: Fragment,
    flags: Mapping[str, Any],
    changes: bool,
) -> str:
    """Return the text of a target with its keys and flags.

    ``changes``: True if the text has keys, or other flags than that of the length.
    """
    template = target.text
    if not changes and target.unchanged:
        template = target.unchanged

    written_flags = {name: write_parameter(value) for name, value in flags.items()}
    words = ""
    for name, word in written_flags.items():
        # The length of llama.cpp, -c, has a separate place in the text.
        if name != "ctx_size":
            words += f" --{name.replace('_', '-')} {word}"
    patch = nest_fragment(fragment, find_nest(target, rotation.source))
    forms = {"json": json.dumps(patch), "lines": json.dumps(patch, indent=2)}
    return template.format(
        length=rotation.context, flags=words, **forms, **written_flags
    )


@dataclass(frozen=True)
class Losses:
    """Sentences about what the runtimes of a target do not do, although the user wants
    it.
    """

    # Runtimes that refuse the text, or get no rotation from it.
    refusing: tuple[str, ...]
    # Runtimes that do not know the model.
    unread: tuple[str, ...]
    # Differences from the wanted rotation.
    differing: tuple[str, ...]
    # The number of runtimes that read the text, and of those that compute what is
    # wanted.
    reading_count: int
    right_count: int

    def count_silent(self) -> int:
        """Count the runtimes that give no rotation for the text."""
        return len(self.refusing) + len(self.unread)


def find_losses(
    target: Target,
    rotation: WantedRotation,
    fragment: Fragment,
    flags: Mapping[str, Any],
) -> Losses:
    """Read a text back as a target's runtimes do, and name what is not as wanted.

    Args:
        target: the target.
        rotation: the rotation that the text is for.
        fragment: the keys of the text.
        flags: its flags.
    """
    source = rotation.source
    refusing = []
    unread = []
    differing: list[str] = []
    right_count = 0
    for name in target.runtimes:
        count_before = len(differing)
        config = source.config
        if fragment and target.as_flag:
            patch = nest_fragment(fragment, find_nest(target, source))
            config = Flags(overrides={name: patch}).apply(name, config)
        elif fragment:
            config = merge_into_part(config, fragment, source.nest)
        reading = registry.read(READERS[name], config, flags)
        main_spec = reading.main_spec
        if main_spec is None:
            if reading.outcome == "refused":
                refusing.append(f"{name} refuses it: {reading.problem}")
            elif reading.outcome == "meaningless":
                refusing.append(f"{name} gets no rotation from it: {reading.problem}")
            else:
                unread.append(f"{name} was not asked: {reading.problem}")
            continue

        reached = main_spec.length
        # vLLM serves longrope at its original length by default. Its text always has
        # the flag --max-model-len, which the reading of the file does not know.
        has_default_length = (
            isinstance(main_spec.scaling, scalings.LongRope)
            and "--max-model-len" in target.text
        )
        is_cut_by_flag = target.as_flag and main_spec.length > rotation.length
        # llama.cpp goes on beyond the length of the file.
        goes_on = "ctx_size" in flags
        if has_default_length or is_cut_by_flag or goes_on:
            # A flag gives the length, so that another length in the file is not a
            # difference.
            main_spec = replace(main_spec, claimed_len=None)
        differing += [
            f"{name}: {word}" for word in list_differences(main_spec, rotation)
        ]
        # Dynamic scaling starts at the length of the file and goes on beyond it. A
        # runtime that scales otherwise ends there.
        is_wanted = isinstance(rotation.scaling, scalings.DynamicNtk)
        is_dynamic = isinstance(main_spec.scaling, scalings.DynamicNtk)
        if is_wanted and not is_dynamic and reached < rotation.context:
            differing.append(f"{name}: length {reached}, not {rotation.context}")
        rotating = reading.rotating
        if rotating and source.rotating and rotating != source.rotating:
            count = f"{sum(rotating)} of {len(rotating)}"
            differing.append(f"{name}: other layers rotate, {count}")
        # Other layers have to stay as they were. Their claimed length is the length of
        # the whole model, which was compared above.
        for label, other in source.other_layers.items():
            layers = replace(reading.layers.get(label, main_spec), claimed_len=None)
            for word in list_differences(layers, other):
                differing.append(f"{name}: {label}: {word}")
        right_count += len(differing) == count_before

    reading_count = len(target.runtimes) - len(refusing) - len(unread)
    # The length may be named by both of the rules above.
    differences = tuple(dict.fromkeys(differing))
    return Losses(
        tuple(refusing), tuple(unread), differences, reading_count, right_count
    )


def find_nest(target: Target, source: ModelFile) -> Sequence[str]:
    """Return the keys that lead to the part of a file that a target's text changes."""
    if target.as_flag and is_moved_into_part(source.config):
        return ("text_config",)
    return source.nest


def nest_fragment(fragment: Fragment, nest: Sequence[str]) -> Fragment:
    """Return a fragment inside the parts of a file that lead to it; nothing for none."""
    if not fragment:
        return {}
    for part in reversed(nest):
        fragment = {part: fragment}
    return fragment


def list_differences(spec: RopeSpec, rotation: RopeSpec) -> list[str]:
    """Name differences in width, frequencies by length, factor on the logits, claimed
    length.
    """
    if spec.rotary_dim != rotation.rotary_dim:
        return [f"rotary_dim {spec.rotary_dim}, not {rotation.rotary_dim}"]

    words = []
    # Runtimes compute in float32, so smaller differences mean nothing.
    lengths = (64, rotation.trained_len, rotation.length, 2 * rotation.length)
    is_same = True
    for length in lengths:
        frequencies = spec.inv_freq(length)
        if not np.allclose(frequencies, rotation.inv_freq(length), rtol=1e-6, atol=0):
            is_same = False
    if not is_same:
        words.append(f"frequencies: {compare_methods(spec, rotation)}")

    if not math.isclose(spec.logit_multiplier, rotation.logit_multiplier, rel_tol=1e-6):
        words.append(
            f"logits x {spec.logit_multiplier:.6g}, not {rotation.logit_multiplier:.6g}"
        )
    if spec.claimed_len is not None and spec.claimed_len != rotation.length:
        words.append(f"length {spec.claimed_len}, not {rotation.length}")
    return words


def compare_methods(spec: RopeSpec, rotation: RopeSpec) -> str:
    """Say by which method a runtime gets other frequencies than the wanted ones."""
    method = spec.method
    wanted = rotation.method
    starts_elsewhere = spec.trained_len != rotation.trained_len
    if starts_elsewhere and spec.scaling.name == rotation.scaling.name:
        method += f" from {spec.trained_len} tokens"
        wanted += f" from {rotation.trained_len}"
    if spec.base != rotation.base:
        method += f" at base {spec.base:g}"
    if method == wanted:
        return f"{shorten_numbers(method)} of other numbers than the file's"
    return shorten_numbers(f"{method} instead of {wanted}")
