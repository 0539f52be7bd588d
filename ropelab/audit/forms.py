"""The forms of a file's scaling: which change makes runtimes apply it that pass over it."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ropelab.audit.audit_case import AuditCase, have_equal_rotation
from ropelab.audit.causes import is_plain
from ropelab.audit.changes import (
    change_block,
    change_file,
    find_wanted_spec,
    list_misled,
    name_block,
    name_misled,
    read_changed,
    write_command,
)
from ropelab.audit.emit import write_text
from ropelab.audit.targets import FLAGS, TARGETS
from ropelab.audit.wanted import (
    Fragment,
    WantedRotation,
    keep_scaling,
    read_model_file,
)
from ropelab.math.scaling import Yarn
from ropelab.readers.spec import RopeSpec
from ropelab.runs.errors import InputError


def advise_form(case: AuditCase, names: Sequence[str]) -> str:
    """Return what makes runtimes apply a file's scaling that pass over it, and the names
    of those for which there is nothing, or which the change would mislead.

    Where the block has no factor, and the reference computes one, it is to be written.

    Args:
        case: the configuration as the runtimes read it.
        names: the runtimes that pass over the scaling.
    """
    is_by_flag = case.flags.name_scaling(case.reference.runtime.name)
    if case.document.kind != "config" or is_by_flag:
        return ""
    if case.group_problems("meaningless"):
        # A value has to be mended first (E11).
        return ""
    factor = getattr(case.spec.scaling, "factor", None)
    if case.block.get("factor") is None and factor is not None:
        change = change_block(case, {"factor": factor})
        changed_config = change_file(case.document, change)
        mended = list_mended(case, changed_config, names, case.spec)
        if mended:
            who = f" (for {', '.join(mended)})" if len(mended) < len(names) else ""
            return f'"factor": {factor:g} inside {name_block(case)}{who}'

    parts = []
    form = choose_form(case, names)
    if form is not None:
        is_for_some = len(form.mended) < len(names)
        who = f" (for {', '.join(form.mended)})" if is_for_some else ""
        advice = f"{form.advice}{who}{name_misled(form.misled)}"
        if not form.is_command:
            # For the others the changed file may have another form.
            return advice
        parts.append(advice)

    without_form = []
    for name in names:
        if form is not None and name in form.mended:
            continue
        command = find_flags(case, name)
        if command:
            parts.append(f"{command}, for {name}")
        else:
            without_form.append(name)
    if without_form:
        parts.append(
            f"nothing that emit writes makes {', '.join(without_form)} apply it"
        )
    return "; ".join(parts)


@dataclass(frozen=True)
class Form:
    """A change of a file that makes runtimes apply its scaling."""

    advice: str
    # Of the runtimes that pass over the scaling, those that apply it then.
    mended: Sequence[str]
    # The runtimes that apply it now, and would no longer do so.
    misled: Sequence[str]

    @property
    def is_command(self) -> bool:
        """True if the text is written by a command, not by hand."""
        return self.advice.startswith("ropelab ")


def choose_form(case: AuditCase, names: Collection[str]) -> Form | None:
    """Return the change after which the fewest runtimes pass over a file's scaling; None
    if no change mends more of them than it misleads.
    """
    best: Form | None = None
    for advice, change in list_changes_of_form(case).items():
        changed_config = change_file(case.document, change)
        # The reference may be one of those that pass over the scaling.
        wanted_spec = find_wanted_spec(case, changed_config)
        if is_plain(wanted_spec):
            continue
        form = Form(
            advice,
            list_mended(case, changed_config, names, wanted_spec),
            list_misled(case, changed_config, wanted_spec, wanted_spec),
        )
        gain = len(form.mended) - len(form.misled)
        best_gain = len(best.mended) - len(best.misled) if best else 0
        if gain > best_gain:
            best = form
    return best


def list_changes_of_form(case: AuditCase) -> dict[str, Fragment]:
    """Return changes that write a file's scaling in another form, by the advice to make
    them: the type under both of its names, and the texts of `emit`.

    A change that is typed by hand comes first.
    """
    changes: dict[str, Fragment] = {}
    if case.layer_in_block:
        # Keys beside the dicts of the layer types have no effect.
        beside = {
            key: value
            for key, value in case.whole_block.items()
            if not isinstance(value, Mapping)
        }
        if beside:
            advice = f"move {', '.join(beside)} into {case.block_path}"
            changes[advice] = change_block(case, beside)
    for key in ("rope_type", "type"):
        if key not in case.block and case.scaling_type:
            advice = f'"{key}": "{case.scaling_type}" inside {name_block(case)}'
            changes[advice] = change_block(case, {key: case.scaling_type})
    for context in list_contexts(case):
        rotation = keep_rotation(case, context)
        if rotation is None:
            continue
        # Of texts that do the same, the one for all runtimes comes first. A text that is
        # a flag is for one server.
        for target in ("portable", *TARGETS):
            if TARGETS[target].as_flag:
                continue
            emission = write_text(target, rotation)
            if emission.keys:
                command = write_command(case, str(context), target)
                changes[f"{command}, for the form that is read"] = dict(emission.keys)
    return changes


def list_contexts(case: AuditCase) -> list[int]:
    """Return the length that a file claims and, if it is another, the one that its
    scaling reaches.
    """
    contexts = [case.spec.length]
    factor = getattr(case.spec.scaling, "factor", 1.0)
    reach = factor * case.spec.trained_len
    if isinstance(case.spec.scaling, Yarn) and not math.isinf(reach):
        contexts.append(round(reach))
    return list(dict.fromkeys(contexts))


def keep_rotation(case: AuditCase, context: int) -> WantedRotation | None:
    """Return the rotation that `emit` keeps of a file; None: it refuses the file."""
    file_name = case.document.name
    try:
        source, spec = read_model_file(file_name, case.document.config)
        rotation, _ = keep_scaling(file_name, source, spec, context)
    except InputError:
        return None
    return rotation


def find_flags(case: AuditCase, name: str) -> str:
    """Return the command that writes flags with which a runtime applies a file's scaling;
    empty if there is none.
    """
    context = case.spec.length
    rotation = keep_rotation(case, context)
    if rotation is None:
        return ""
    for target, about in TARGETS.items():
        writes_flags = about.as_flag or target in FLAGS
        if name not in about.runtimes or not writes_flags:
            continue
        emission = write_text(target, rotation)
        if emission.changes and not emission.lost:
            return write_command(case, str(context), target)
    return ""


def list_mended(
    case: AuditCase,
    changed_config: Mapping[str, Any],
    names: Collection[str],
    wanted_spec: RopeSpec,
) -> list[str]:
    """Return those of some runtimes that rotate as is wanted after a change of a file."""
    mended = []
    for reading in case.readings:
        spec = read_changed(case, reading, changed_config)
        is_mended = spec is not None and have_equal_rotation(spec, wanted_spec)
        if reading.runtime.name in names and is_mended:
            mended.append(reading.runtime.name)
    return mended
