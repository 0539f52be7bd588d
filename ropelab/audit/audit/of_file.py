"""What a configuration itself says wrongly, or leaves to defaults, and what to type instead."""

import math
from collections.abc import Iterator
from typing import Any, TypeGuard

from ropelab.audit.audit.case import Case, Finding
from ropelab.audit.runtimes.families import meaning, near
from ropelab.audit.runtimes.trace import language_part


def conflicting_types(case: Case) -> Iterator[Finding]:
    """Two names for the type that say different things."""
    old, new = case.block.get("type"), case.block.get("rope_type")
    if old and new and old != new and (old, new) not in (("su", "longrope"), ("mrope", "default")):
        says = f"type says {old}, rope_type says {new}: runtimes pick one or refuse both"
        yield Finding("E01", "error", says, f"write the same name twice: {new}")


def unknown_keys(case: Case) -> Iterator[Finding]:
    """Keys that nobody knows, and keys that a minority reads."""
    for use in case.reference.keys:
        close = near(use.path)
        if not meaning(use.path) and close:
            yield Finding("W01", "warn", f"{use.path} is known to nobody", f"did you mean {close}?")
    for path in [use.path for use in case.reference.keys if use.path.endswith(".attn_factor")]:
        says = f"{path}: SGLang multiplies its attention factor with it, others do not read it"
        yield Finding("W01", "warn", says, "attention_factor, for the runtimes that read it")


def factor_and_ratio(case: Case) -> Iterator[Finding]:
    """A factor that is not the ratio of the lengths."""
    _, text = language_part(case.document.config)
    factor, original = case.block.get("factor"), case.block.get("original_max_position_embeddings")
    maximum = text.get("max_position_embeddings")
    kind = case.block.get("rope_type") or case.block.get("type")
    if kind != "yarn" or not original:
        return
    if not (_is_number(factor) and _is_number(original) and _is_number(maximum)):
        return
    if not math.isclose(factor * original, maximum, rel_tol=1e-6):
        says = (
            f"max_position_embeddings {maximum} is not factor {factor:g} x original {original}: "
            "runtimes that compute the factor from the lengths use "
            f"{maximum / original:g}, and servers allow {maximum} tokens"
        )
        yield Finding("W02", "warn", says, f'"max_position_embeddings": {round(factor * original)}')


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float)


def grows_with_cache(case: Case) -> Iterator[Finding]:
    """A base that follows the length, while cached keys keep the old one."""
    if case.spec.scaling.name == "dynamic_ntk":
        says = (
            "dynamic: keys already in the cache keep the base they were turned with, so beyond "
            f"{case.spec.trained_len} tokens scores depend on when a token was read"
        )
        yield Finding("W07", "warn", says, "yarn with a fixed factor")


def beside_layers(case: Case) -> Iterator[Finding]:
    """Entries beside the dicts of layer types."""
    stray = [use.path for use in case.reference.keys if use.note.startswith("stands beside")]
    if stray:
        says = f"{', '.join(stray)} stands beside the dicts of the layer types and does nothing"
        yield Finding("W11", "warn", says, "move it into each layer type's dict")


def file_traps(case: Case) -> Iterator[Finding]:
    """What a GGUF file leaves to defaults, and which of its keys nothing reads."""
    if case.document.kind != "gguf":
        return
    fields = case.document.config
    if "rope.freq_base" not in fields:
        says = "the file has no rope.freq_base: llama.cpp turns with base 10000"
        yield Finding("W12", "warn", says, "--rope-freq-base, or convert again")
    if "rope.scaling.factor" in fields and "rope.scaling.type" not in fields:
        says = "a factor without rope.scaling.type is taken as linear"
        yield Finding("W12", "warn", says, "--rope-scaling yarn, if that was meant")
    if "rope.scaling.yarn_attn_factor" in fields:
        says = "rope.scaling.yarn_attn_factor has no effect: it is computed from the factor"
        yield Finding("W12", "warn", says, "rope.scaling.attn_factor multiplies it")


def tokenizer(case: Case) -> Iterator[Finding]:
    """A tokenizer that stops before the model."""
    limit = case.document.tokenizer_length
    claimed = case.spec.claimed_len
    if limit and claimed and limit < claimed:
        says = f"tokenizer_config.json says model_max_length {limit}, the model claims {claimed}"
        yield Finding("W14", "warn", says)


def short_price(case: Case) -> Iterator[Finding]:
    """What a static factor costs below the trained length."""
    spec = case.spec
    factor = getattr(spec.scaling, "factor", 1.0)
    if spec.scaling.name == "yarn" and factor > 1:
        says = (
            f"yarn by {factor:g} is there from position 0: every logit times "
            f"{spec.attention_factor**2:.4g} and slow pairs divided, also below "
            f"{spec.trained_len} tokens"
        )
        yield Finding("N01", "note", says, "leave it off where contexts are short")
    if case.asked and factor > 1 and case.asked < factor * spec.trained_len:
        need = max(1.0, case.asked / spec.trained_len)
        says = f"{case.asked} tokens need a factor of {need:.4g}, the file has {factor:g}"
        yield Finding("N02", "note", says, f'"factor": {need:.4g}')
