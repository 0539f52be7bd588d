"""Entries for what arithmetic decides: precision and bases."""

from collections.abc import Iterator
from itertools import pairwise

import pandas as pd

from tests.docs.entry import Entry
from tests.docs.reference import REFERENCE, config_of, only, run, scientific, table

PRECISION = (("length", 131072), ("schemes", ("single", "rope")))
PRESETS = (("length", 131072), ("preset", ("all",)))
REPORTS = {
    "gpt-neox 1003": "gpt-neox/issues/1003",
    "modalities 462": "modalities/pull/462",
    "TensorRT-LLM 18774": "TensorRT-LLM/pull/18774",
    "transformers 48428": "transformers/issues/48428",
    "diffusers 13920": "diffusers/issues/13920",
    "candle 3520": "candle/pull/3520",
    "mlx-lm 1076": "mlx-lm/pull/1076",
}


def first_bad(stage: str) -> str:
    """The first position that a cast of one stage to bfloat16 gets wrong."""
    casts = table(run("precision", *PRECISION), "casts")
    return f"{only(casts[casts['name'] == f'{stage}=bfloat16'], 'first_bad_position'):.0f}"


def collisions(scheme: str, channel: str, number_format: str) -> int:
    """Neighbours that one code cannot tell apart."""
    rows = table(run("precision", *PRECISION), "resolution")
    keys = (rows["scheme"] == scheme) & (rows["channel"] == channel)
    return int(only(rows[keys & (rows["format"] == number_format)], "adjacent_collisions"))


def share_colliding(scheme: str, channel: str, number_format: str) -> str:
    """The same in percent of all neighbours."""
    return f"{100 * collisions(scheme, channel, number_format) / 131071:.1f}"


def presets() -> pd.DataFrame:
    """The cast plans of implementations."""
    casts = table(run("precision", *PRESETS), "casts")
    return casts[casts["kind"] == "preset"].set_index("name")


def right_presets() -> pd.DataFrame:
    """Those that keep every angle."""
    return presets()[presets()["first_bad_position"].isna()]


def reported(place: str) -> list[str]:
    """How many of the numbers of a report are reproduced, of how many."""
    manifests = (REFERENCE / "precision").glob("*/manifest.json")
    about = [m.parent for m in manifests if place.lower() in str(config_of(m)["source"]).lower()]
    verdicts = pd.concat([table(folder, "incidents") for folder in about])["verdict"]
    return [str((verdicts == "agrees").sum()), str(len(verdicts))]


def precision_entries() -> Iterator[Entry]:
    """README and section 1 of the findings."""
    yield Entry(
        "README.md",
        "wrong (by more than 0.01 rad) from position {} on, inverse frequencies from {}, "
        "positions from {}.",
        lambda: [first_bad(stage) for stage in ("angle", "inv_freq", "position")],
    )
    for words, stage in (
        ("angle", "angle"),
        ("inverse frequencies", "inv_freq"),
        ("positions", "position"),
    ):
        row = f"| {words} | {{}} |"
        yield Entry("docs/findings.md", row, lambda stage=stage: [first_bad(stage)])
    yield Entry(
        "docs/findings.md",
        "cos alone gives {} of 131,071",
        lambda: [str(collisions("single", "cos", "float32"))],
    )
    yield Entry(
        "docs/findings.md",
        "In float16 and bfloat16 {} % and {} % of the neighbours collide even together",
        lambda: [share_colliding("single", "pair", f) for f in ("float16", "bfloat16")],
    )
    yield Entry(
        "docs/findings.md",
        "it gives {} % of the neighbours the same value in float16, {} % in bfloat16",
        lambda: [share_colliding("rope", "score", f) for f in ("float16", "bfloat16")],
    )
    yield Entry(
        "docs/findings.md",
        "Of {} cast plans, most of them models of real code, {} keep every angle within {} rad at "
        "131,072 positions; {} do not",
        lambda: [
            str(len(presets())),
            str(len(right_presets())),
            f"{right_presets()['max_angle_error_rad'].max():.4f}",
            str(len(presets()) - len(right_presets())),
        ],
    )
    for name in (
        "half_cache_bfloat16",
        "transformers_to_bfloat16",
        "half_cache_float16",
        "tf32_matmul",
        "positions_bfloat16",
    ):
        row = f"| `{name}` | {{}} |"
        wrong_from = lambda name=name: [f"{presets().loc[name, 'first_bad_position']:.0f}"]  # noqa: E731
        yield Entry("docs/findings.md", row, wrong_from)
    for words, place in REPORTS.items():
        row = f"| {words} | {{}} of {{}} |"
        yield Entry("docs/findings.md", row, lambda place=place: reported(place))


LENGTHS = tuple(2**power for power in range(10, 25))


def bases(name: str) -> pd.DataFrame:
    """A table of the run over 1k to 16M tokens."""
    return table(run("base", ("context", LENGTHS)), name)


def at_32k(name: str) -> pd.DataFrame:
    """A table of the run about 32k tokens."""
    return table(run("base", ("context", (32768,))), name)


def loose_and_failing() -> list[str]:
    """How many printed bases are loose, and how many fail inside their context."""
    published = bases("published")
    loose = (published["verdict"] == "loose").sum()
    return [str(loose), str(published["paper_fails_at_tokens"].notna().sum())]


def bound_row(context: int) -> list[str]:
    """Base to use, printed base, where it fails, first base, printed / first; those there are."""
    bound = bases("bound").set_index("context_tokens").loc[context]
    use, first = (bound[f"{name}_base"] for name in ("usable", "first_admissible"))
    published = bases("published").set_index("context_tokens")
    if context not in published.index:
        return [scientific(use, 1), scientific(first)]
    row = published.loc[context]
    fails = row["paper_fails_at_tokens"]
    return [
        scientific(use, 1),
        scientific(row["paper_base"], 1),
        "–" if pd.isna(fails) else f"{fails:,.0f}",
        scientific(first),
        f"{row['times_exact']:.2f}",
    ]


def growth() -> list[str]:
    """From 512k to 2M tokens, and from 2M to 4M."""
    first = bases("bound").set_index("context_tokens")["first_admissible_base"]
    places = (2**19, 2**21, 2**22)
    return [f"{first[b] / first[a]:.2f}" for a, b in pairwise(places)]


def exponents(*values: str) -> list[str]:
    """Of fits through the values named."""
    fits = bases("fits").set_index("values")["exponent"]
    return [f"{fits[name]:.2f}" for name in values]


def windows(context: int) -> pd.DataFrame:
    """The admissible windows of one context."""
    every = bases("windows")
    return every[every["context_tokens"] == context]


def typed_back() -> list[str]:
    """Contexts whose first base as printed is in no window, of those with all windows."""
    known = {context: windows(context) for context in LENGTHS[: LENGTHS.index(2**17) + 1]}
    firsts = bases("bound").set_index("context_tokens")["first_admissible_base"]
    typed = {context: float(scientific(firsts[context])) for context in known}
    outside = [
        context
        for context, found in known.items()
        if not found["low"].le(typed[context]).mul(found["high"].ge(typed[context])).any()
    ]
    return [str(len(outside)), str(len(known))]


def first_gap() -> float:
    """The end of the first window at 32k tokens."""
    return at_32k("windows")["high"].iloc[0]


def theory(name: str) -> str:
    """A theory's base at 32k tokens over the exact one."""
    rows = at_32k("theories")
    return f"{only(rows[rows['theory'] == name], 'times_exact'):.3f}"


def base_entries() -> Iterator[Entry]:
    """README and section 2 of the findings."""
    usable = lambda: f"{only(at_32k('bound'), 'usable_base') / 1e6:.1f}e6"  # noqa: E731
    yield Entry(
        "README.md",
        "print for 1k to 1M tokens, {} are loose, at 1M by a factor of {}, and {} of the printed "
        "bases fail inside the context they are given for. For 32k tokens use {}: it and every "
        "larger base work, by proof. The first base that works, {}, does not help: from {} on",
        lambda: [
            loose_and_failing()[0],
            f"{bases('published')['times_exact'].iloc[-1]:.2f}",
            loose_and_failing()[1],
            usable(),
            scientific(only(at_32k("bound"), "first_admissible_base")),
            scientific(first_gap()),
        ],
    )
    names = ("1k", "2k", "4k", "8k", "16k", "32k", "64k", "128k", "256k", "512k", "1M")
    for name, context in zip(names, LENGTHS, strict=False):
        row = f"| {name} | {{}} | {{}} | {{}} | {{}} | {{}} |"
        yield Entry("docs/findings.md", row, lambda context=context: bound_row(context))
    for name, context in zip(("2M", "4M", "8M", "16M"), LENGTHS[11:], strict=True):
        row = f"| {name} | {{}} | | | {{}} | |"
        yield Entry("docs/findings.md", row, lambda context=context: bound_row(context))
    yield Entry(
        "docs/findings.md",
        "- {} of the 11 printed values are loose (more than their rounding), and {} fail inside",
        loose_and_failing,
    )
    yield Entry(
        "docs/findings.md",
        "There are {} windows at 32k and {} at 128k; the first one at 64k reaches from {} to {}.",
        lambda: [
            *(str(len(windows(context))) for context in (2**15, 2**17)),
            *(scientific(windows(2**16)[end].iloc[0], 4) for end in ("low", "high")),
        ],
    )
    yield Entry(
        "docs/findings.md",
        "typed back as it stands in the table, it fails for {} of the {} contexts up to 128k.",
        typed_back,
    )
    yield Entry(
        "docs/findings.md",
        "For 32k tokens use {}, the stable base {} rounded up",
        lambda: [usable(), scientific(only(at_32k("bound"), "stable_base"))],
    )
    yield Entry(
        "docs/findings.md",
        "the exact values grow as L^{} and the printed ones as L^{}; up to 16M tokens L^{}.",
        lambda: exponents("exact values of its contexts", "paper values", "exact values"),
    )
    yield Entry(
        "docs/findings.md",
        "from 512k to 2M the first base grows by {}, from 2M to 4M by {}.",
        growth,
    )
    yield Entry(
        "docs/findings.md",
        "NTK-aware scaling from 4k asks for {} of the exact value, the rule that every pair turns "
        "once for {}.",
        lambda: [theory("NTK-aware"), theory("every pair turns once")],
    )
