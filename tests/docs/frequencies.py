"""Entries for the section on one frequency or many."""

from collections.abc import Iterator

from ropelab.runs.labels import roughly
from tests.docs.entry import Entry
from tests.docs.reference import config_of, newest, only, table, titled

FINDINGS = "docs/findings.md"
SHOWN = {
    "none": "p_rope(p=0)",
    "one, period 1,000,000": "one(period=1e+06)",
    "one, period 256": "one(period=256)",
    "one, period 32": "one(period=32)",
    "one, period 6.2832": "one(period=6.2832)",
    "two": "spaced(n=2)",
    "four": "spaced(n=4)",
    "four, in equal steps": "spaced(n=4, uniform=true)",
    "eight": "spaced(n=8)",
    "sixteen": "spaced(n=16)",
    "sixteen, in equal steps": "spaced(n=16, uniform=true)",
    "RoPE's sixteen": "unscaled",
    "RoPE's without the fast third": "without(band=fast)",
    "RoPE's without the middle third": "without(band=middle)",
    "RoPE's without the slow third": "without(band=slow)",
}
PLACES = ((16, 128), (64, 128), (256, 512))
SLOW = "one(period=1e+06)"


def learned(scheme: str) -> list[str]:
    """Copying near, far and beyond, and text at the trained length, over seeds."""
    rows = table(newest("frequencies", "learned"), "learned").query("removed == 'none'")
    mine = rows[rows["scheme"] == scheme]
    copies = mine[mine["metric"] == "copy accuracy"]
    found = [
        only(copies.query(f"distance_tokens == {d} and context_tokens == {c}"), "value")
        for d, c in PLACES
    ]
    text = mine[(mine["metric"] == "text loss") & (mine["context_tokens"] == 128)]
    return [*(f"{value:.2f}" for value in found), f"{only(text, 'value'):.3f}"]


def by_context() -> list[str]:
    """Text loss of RoPE after each context inside the trained length, over seeds."""
    rows = table(newest("frequencies", "learned"), "learned").query("removed == 'none'")
    rows = rows[(rows["scheme"] == "unscaled") & (rows["metric"] == "text loss")]
    rows = rows[rows["context_tokens"] <= rows["train_len_tokens"]].sort_values("context_tokens")
    return [f"{value:.3f}" for value in rows["value"]]


def trained_longer() -> list[str]:
    """Copying from half of the trained length back after four times the training."""
    folder = titled("frequencies", "One frequency or many, trained four times as long")
    rows = table(folder, "learned").query(
        "removed == 'none' and metric == 'copy accuracy' and distance_tokens == 64 "
        "and context_tokens == 128"
    )
    found = rows.set_index("scheme")["value"]
    return [f"{found[scheme]:.2f}" for scheme in ("unscaled", "one(period=32)", SLOW)]


def removed(band: str, distance: int, context: int) -> str:
    """What copying changes by without a band, `~` where noise decides."""
    rows = table(newest("frequencies", "removed"), "removed")
    row = rows[(rows["removed_a"] == band) & (rows["metric"] == "copy accuracy")].query(
        f"distance_tokens == {distance} and context_tokens == {context}"
    )
    verdict = row["verdict"].item()
    return f"{only(row, 'difference'):+.2f}{'~' if verdict == '~' else ''}"


def signal(scheme: str, column: str, number_format: str = "float32", times: float = 1.0) -> str:
    """What one token changes in a score of random vectors."""
    rows = table(newest("frequencies", "representable"), "representable")
    chosen = (rows["scheme"] == scheme) & (rows["vectors"] == "random")
    return roughly(times * only(rows[chosen & (rows["format"] == number_format)], column))


def seeds() -> str:
    """How many models of each kind."""
    manifest = newest("frequencies", "learned") / "manifest.json"
    return str(len(config_of(manifest)["seeds"]))


def best_nearer() -> str:
    """The largest share of nearer cues found from 16 back in 128 tokens."""
    rows = table(newest("frequencies", "learned"), "learned")
    chosen = rows[(rows["metric"] == "nearer accuracy") & (rows["removed"] == "none")]
    return f"{chosen.query('distance_tokens == 16 and context_tokens == 128')['value'].max():.2f}"


def in_readme() -> list[str]:
    """The signal of one slow frequency, and copying from half of the window by their number."""
    half = {scheme: learned(scheme)[1] for scheme in SHOWN.values()}
    single = max(share for scheme, share in half.items() if scheme.startswith("one"))
    many = [half[f"spaced(n={n})"] for n in (2, 4, 8, 16)]
    return [signal(SLOW, "score_step"), single, *many, seeds()]


def frequencies_entries() -> Iterator[Entry]:
    """The sentences and both tables of the section, and what the README says of it."""
    yield Entry(
        "README.md",
        "one token changes a score by {} only. Models with a single frequency copy at most {} of "
        "the symbols from half of their window back; with 2, 4, 8 and 16 frequencies it is {}, {}, "
        "{} and {} ({} seeds).",
        in_readme,
    )
    yield Entry(FINDINGS, "one model per scheme and seed, {} seeds.", lambda: [seeds()])
    yield Entry(
        FINDINGS,
        "the same last bytes cost RoPE's sixteen {}, {} and {} nats per byte after 32, 64 and 128.",
        by_context,
    )
    yield Entry(
        FINDINGS,
        "a score of random vectors changes by {} with one frequency of a period of a million "
        "tokens: {} times its rounding in float32, {} of it in bfloat16. Softmax gives one of two "
        "neighbours {} % more weight for that; with RoPE's frequencies the change is {}, which is "
        "{} %.",
        lambda: [
            signal(SLOW, "score_step"),
            signal(SLOW, "step_to_rounding"),
            signal(SLOW, "step_to_rounding", "bfloat16"),
            signal(SLOW, "weight_change", times=100),
            signal("unscaled", "score_step"),
            signal("unscaled", "weight_change", times=100),
        ],
    )
    yield Entry(
        FINDINGS,
        "models with RoPE's sixteen copy {} from 64 back, with one of period 32 {}, and with one "
        "of period 1,000,000 {}.",
        trained_longer,
    )
    for label, scheme in SHOWN.items():
        text = f"| {label} |" + " {} |" * (len(PLACES) + 1)
        yield Entry(FINDINGS, text, lambda scheme=scheme: learned(scheme))
    for band in ("fast", "middle", "slow"):
        at = ((16, 128), (96, 128), (16, 512), (384, 512))
        yield Entry(
            FINDINGS,
            f"| taken: the {band} third |" + " {} |" * len(at),
            lambda band=band, at=at: [removed(band, *place) for place in at],
        )
    yield Entry(FINDINGS, "learned by none (at best {} from 16 back", lambda: [best_nearer()])
