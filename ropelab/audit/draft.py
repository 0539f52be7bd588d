"""Findings about a draft model beside its target, for speculative decoding."""

from ropelab.audit.findings import Finding, found
from ropelab.audit.overview import Case
from ropelab.audit.runtimes.trace import language_part
from ropelab.runs.sentences import typed

# In config.json and in a GGUF file.
SIZES = (("num_hidden_layers", "block_count"), ("hidden_size", "embedding_length"))


def sizes(case: Case) -> list[float]:
    """Return the number of layers and their width, as far as the file gives them."""
    _, text = language_part(case.document.config)
    found = (next((text[name] for name in names if name in text), None) for names in SIZES)
    return [value for value in found if isinstance(value, int | float)]


def is_draft(target: Case, other: Case) -> bool:
    """Return True if no size is larger than the target's, and one is smaller."""
    pairs = list(zip(sizes(target), sizes(other), strict=False))
    smaller = any(mine > theirs for mine, theirs in pairs)
    return len(pairs) == len(SIZES) and smaller and all(mine >= its for mine, its in pairs)


def findings(target: Case, draft: Case) -> list[Finding]:
    """Return what a smaller second file means as the draft model of the first."""
    if not is_draft(target, draft):
        return []
    said, ours, theirs = [], target.spec, draft.spec
    longest = max(target.asked or 0, ours.length)
    if theirs.length < longest:
        name = draft.document.name
        said.append(found("W17", name=name, theirs=theirs.length, longest=longest))
    differences = {
        "base": (typed(ours.base), typed(theirs.base)),
        "scaling": (ours.method, theirs.method),
        "factor on logits": (typed(ours.logit_multiplier), typed(theirs.logit_multiplier)),
    }
    apart = [
        f"{name} {two[1]}, not {two[0]}" for name, two in differences.items() if len({*two}) > 1
    ]
    if apart:
        said.append(found("N05", apart="; ".join(apart)))
    return said
