"""Rules of an audit that find no mistake: effects to know, and runtimes left out."""

import math
from collections.abc import Iterator

from ropelab.audit.audit_case import AuditCase
from ropelab.audit.changes import write_command
from ropelab.audit.finding import AuditFinding, make_finding, say_where
from ropelab.audit.fixes import advise_factor
from ropelab.math.scaling import Unscaled, Yarn
from ropelab.readers.families import TRAINED_LENGTHS, find_family
from ropelab.readers.family import Family
from ropelab.runs.files import read_table_beside

# Model types whose training went on with YaRN, although their class does not show it.
_TRAINED_WITH_YARN = frozenset(
    read_table_beside(__file__, "aspects")["trained_scaled"].split()
)


def make_notes(case: AuditCase) -> Iterator[AuditFinding]:
    """Yield the notes on a file."""
    yield from note_static_yarn(case)
    yield from note_short_training(case)
    yield from note_missing_type(case)
    yield from note_left_out(case)


def note_static_yarn(case: AuditCase) -> Iterator[AuditFinding]:
    """State what YaRN does to prompts within the trained length.

    A model that was trained with YaRN has never seen unscaled positions, and gets no
    note.
    """
    scaled_specs = {
        name: spec
        for name, spec in case.specs
        if isinstance(spec.scaling, Yarn) and spec.scaling.factor > 1
    }
    if not scaled_specs:
        return
    if was_trained_with_yarn(find_family(case.reference.model_type)):
        return

    # The numbers are those of the reference, or of the first runtime that scales.
    name = case.reference.runtime.name
    if name not in scaled_specs:
        name = next(iter(scaled_specs))
    spec = scaled_specs[name]
    assert isinstance(spec.scaling, Yarn)
    factor = spec.scaling.factor
    # The multiplier is rounded as it is printed. A printed 1 would say nothing.
    multiplier = f"{spec.logit_multiplier:.4g}"
    times = "" if multiplier == "1" else f"every logit times {multiplier}, "
    where = say_where(case, scaled_specs)
    trained = spec.trained_len
    yield make_finding("N01", factor=factor, where=where, trained=trained, times=times)

    # The user asked for a length that a smaller factor would reach.
    # A factor is often written with few digits.
    reach = factor * trained
    reach = reach if math.isinf(reach) else round(reach)
    if case.requested_length and case.requested_length < reach:
        needed = max(1.0, case.requested_length / trained)
        fix = advise_factor(case, needed, name)
        yield make_finding(
            "N02",
            asked=case.requested_length,
            need=needed,
            factor=factor,
            where=where,
            fix=fix,
        )


def was_trained_with_yarn(family: Family) -> bool:
    """Return True for model types whose training went on with YaRN switched on."""
    block = family.rope_block
    has_yarn_by_default = block.get("rope_type", block.get("type")) == "yarn"
    return has_yarn_by_default or family.latent or family.name in _TRAINED_WITH_YARN


def note_short_training(case: AuditCase) -> Iterator[AuditFinding]:
    """Name the trained length of a model whose file allows more tokens, unscaled."""
    spec = case.spec
    model_type = case.reference.model_type
    trained = TRAINED_LENGTHS.get((model_type, spec.length))
    if trained is None or not isinstance(spec.scaling, Unscaled):
        return
    fix = ""
    if case.document.kind == "config":
        command = write_command(case, "N")
        fix = f"{command}, which beyond {spec.length} scales from {trained}"
    yield make_finding(
        "N07", kind=model_type, trained=trained, allowed=spec.length, fix=fix
    )


def note_missing_type(case: AuditCase) -> Iterator[AuditFinding]:
    """Say what happens to a configuration that names no model type."""
    if case.document.kind == "config" and not case.reference.model_type:
        yield make_finding("N06")


def note_left_out(case: AuditCase) -> Iterator[AuditFinding]:
    """Name the runtimes for which nothing was computed, each with the reason."""
    groups = []
    for problem, names in case.group_problems("not modelled").items():
        groups.append(f"{', '.join(names)} ({problem})")
    if groups:
        yield make_finding("N03", runtimes="; ".join(groups))
