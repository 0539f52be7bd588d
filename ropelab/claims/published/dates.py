"""Checks of claims about who was first, and who uses what, decided by dated publications.

A check measures something and adds the result to `findings`: as a part, without which the
claim does not hold, or as a limit, which puts a condition on it (see `Findings`).

An arXiv number is a date: its first four digits are the year and month, and later papers
have larger numbers.
"""

from collections.abc import Sequence

from ropelab.claims.record import Findings, claim
from ropelab.math.models import MODELS

# A name and an arXiv number.
Paper = tuple[str, str]
# The arXiv number of the RoFormer paper.
ROPE = "2104.09864"


def write_month(arxiv: str) -> str:
    """Return the year and month of an arXiv number such as 2104.09864."""
    return f"20{arxiv[:2]}-{arxiv[2:4]}"


def read_year(arxiv: str) -> int:
    """Return the year of an arXiv number."""
    return int(f"20{arxiv[:2]}")


@claim("three-generations", "third-generation")
def compare_years(
    findings: Findings, said: Sequence[tuple[str, int, Paper, Paper]]
) -> None:
    """Compare the year given for each kind of encoding with its example and with its
    first paper.

    `said` has for each kind its name, the year, the example and the first paper.
    """
    findings.expected = ", ".join(f"{kind} {year}" for kind, year, _, _ in said)
    for kind, year, (example, example_number), (first, first_number) in said:
        example_year = read_year(example_number)
        first_year = read_year(first_number)

        # The year that is given may be the year of the example, or the year of the first
        # paper of its kind.
        is_either_year = year in (example_year, first_year)
        dates = f"{example}, {write_month(example_number)}"
        if first_number != example_number:
            dates += f", and {first}, {write_month(first_number)}"
        what = f"{kind}, {year}: the example and the first of them"
        findings.add_part(what, dates, is_either_year, first_year)

        other_years = []
        for name, year_of_one in ((example, example_year), (first, first_year)):
            if year_of_one != year:
                other_years.append(f"{name} {year_of_one}")
        measured = ", ".join(dict.fromkeys(other_years)) or "none"
        what = f"{kind}, {year}: those of another year"
        findings.add_limit(what, measured, not other_years, len(other_years))


@claim("shaw-earliest")
def compare_dates(
    findings: Findings, paper: Paper, others: Sequence[Paper], outside: Paper
) -> None:
    """Compare the date of a paper with the dates of all other papers that a source
    names, and with the date of a paper outside the source.
    """
    name, number = paper
    date = float(number)
    is_earliest_of_named = all(date < float(other) for _, other in others)
    measured = ", ".join(
        f"{other_name} {write_month(other)}" for other_name, other in others
    )
    what = f"{name} {write_month(number)}, the others"
    findings.add_part(what, measured, is_earliest_of_named)

    outside_name, outside_number = outside
    is_earlier = date < float(outside_number)
    findings.add_limit(outside_name, write_month(outside_number), is_earlier)


@claim("deberta-year", "alibi-year")
def compare_year(
    findings: Findings, name: str, arxiv: str, printed: int, said: int
) -> None:
    """Compare a year with that of the preprint, and with that of the proceedings: a paper
    is cited by either.

    Args:
        findings: the findings so far.
        name: the name of the paper.
        arxiv: the number of its preprint.
        printed: the year of the proceedings.
        said: the year that the claim gives.
    """
    preprint_year = read_year(arxiv)
    is_either_year = said in (preprint_year, printed)
    what = f"{name}, arXiv:{arxiv} and in print"
    measured = f"{write_month(arxiv)} and {printed}"
    findings.add_part(what, measured, is_either_year, preprint_year)


@claim("llama-rope")
def read_configurations(findings: Findings, models: Sequence[str]) -> None:
    """Read the configurations of models that should have RoPE."""
    texts = []
    for name in models:
        model = MODELS.get(name)
        if model is not None:
            width = f"{model.rotary_width} of {model.head_dim} features"
            texts.append(f"{name}: base {model.base:g}, {width}")
    measured = "; ".join(texts) or "nothing"
    # A model whose configuration is not at hand leaves the claim open.
    agrees = True if len(texts) == len(models) else None
    findings.add_part("what the configurations say", measured, agrees)


@claim("large-models-use")
def count_encodings(
    findings: Findings, published: Sequence[tuple[str, str, str]]
) -> None:
    """Count position encodings: of the configurations at hand, and of papers.

    `published` has for each model of a paper its name, its source, and its encoding.
    """
    claimed_kinds = ("RoPE", "ALiBi")

    # `ropelab models` lists models by their rotary numbers, so that all these models
    # have RoPE.
    what = "models that ropelab knows by configuration, RoPE or ALiBi"
    known = len(MODELS)
    # The models of `ropelab models` are no sample of large models, so that their number
    # neither agrees nor disagrees.
    findings.add_limit(what, f"{known} of {known}, chosen for RoPE", None, known)

    counts: dict[str, int] = {}
    other_names = []
    for name, _, kind in published:
        counts[kind] = counts.get(kind, 0) + 1
        if kind not in claimed_kinds:
            other_names.append(name)
    total = len(published)
    with_claimed = total - len(other_names)

    listed = ", ".join(f"{kind} {count}" for kind, count in counts.items())
    what = "large language models of papers, 2020 to 2023, RoPE or ALiBi"
    measured = f"{with_claimed} of {total} ({listed})"
    is_most = 2 * with_claimed > total
    findings.add_part(what, measured, is_most, with_claimed)
    what = "large language models of papers with something else"
    # The source speaks of what is usual, which exceptions do not contradict.
    listed = ", ".join(other_names) or "none"
    findings.add_limit(what, listed, None, len(other_names))


@claim("gpt-3-rope", "gpt-4-rope")
def compare_with_date_of_rope(findings: Findings, name: str, user: str) -> None:
    """Compare the date of a model's paper with the date of RoPE's: an earlier model
    cannot use RoPE.

    `user` is the arXiv number of the model's paper, or empty if no paper was published.
    """
    if user:
        measured = f"{write_month(user)} (arXiv:{user}), RoPE in {write_month(ROPE)}"
        is_later = float(user) >= float(ROPE)
        findings.add_part(f"{name}'s paper appeared in", measured, is_later)
    else:
        findings.add_part(f"{name}'s architecture", "not published", agrees=None)
