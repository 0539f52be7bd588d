"""Rules of an audit: effects that are no mistake, and runtimes left out."""

from collections.abc import Iterator

from ropelab.audit.audit_case import AuditCase
from ropelab.audit.finding import AuditFinding, make_finding
from ropelab.math.scaling import Unscaled, Yarn
from ropelab.readers.families import TRAINED, family_of
from ropelab.runs.files import table_beside

# Model types whose training went on with YaRN, although their class does not show it.
TRAINED_SCALED = frozenset(table_beside(__file__, "aspects")["trained_scaled"].split())


def is_trained_scaled(model_type: str) -> bool:
    """Return True for models whose training went on with YaRN switched on."""
    family = family_of(model_type)
    by_class = family.rope.get("rope_type", family.rope.get("type")) == "yarn"
    return by_class or family.latent or model_type in TRAINED_SCALED


def make_notes(case: AuditCase) -> Iterator[AuditFinding]:
    """State effects of a right configuration, and the runtimes that were left out."""
    spec = case.spec
    model_type = case.reference.model_type
    # YaRN changes short prompts, too, which matters unless the model was trained with it.
    is_static = isinstance(spec.scaling, Yarn) and spec.scaling.factor > 1
    if is_static and not is_trained_scaled(model_type):
        yield from note_static_factor(case)

    trained = TRAINED.get((model_type, spec.length))
    if trained is not None and isinstance(spec.scaling, Unscaled):
        about = {"trained": trained, "allowed": spec.length}
        yield make_finding("N07", kind=model_type, **about)
    if case.document.kind == "config" and not model_type:
        yield make_finding("N06")

    parts = []
    for problem, names in case.group_problems("not modelled").items():
        parts.append(f"{', '.join(names)} ({problem})")
    if parts:
        yield make_finding("N03", runtimes="; ".join(parts))


def note_static_factor(case: AuditCase) -> Iterator[AuditFinding]:
    """State what YaRN does to short prompts, and the factor that is enough."""
    spec = case.spec
    factor = getattr(spec.scaling, "factor", 1.0)
    # The factor is rounded as it is printed. A printed 1 would be no factor at all.
    rounded = f"{spec.logit_multiplier:.4g}"
    times = "" if rounded == "1" else f"every logit times {rounded}, "
    yield make_finding("N01", factor=factor, trained=spec.trained_len, times=times)

    if case.asked and case.asked < factor * spec.trained_len:
        need = max(1.0, case.asked / spec.trained_len)
        yield make_finding("N02", asked=case.asked, need=need, factor=factor)
