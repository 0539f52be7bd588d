"""Small finished runs, written by hand, with everything in them that a page has to cope
with.
"""

import pandas as pd

from ropelab.runs.store import RUN

NASTY = "<script>window.pwned = 1</script><img src=x onerror='window.pwned=2'>"


RUNS = (("first-00000001", 0.0), ("second-00000002", 0.01), ("third-00000003", 0.0))


def accuracies(shift, seeds=(0, 1, 2)):
    """Two methods, three seeds, four distances; `shift` moves the second method."""
    rows = [
        {
            "method": method,
            "factor": factor,
            "seed": seed,
            "arm": "zero_shot",
            "distance_tokens": distance,
            "trials": 100,
            "accuracy": (0.9 - 0.1 * at) * factor / 4
            + (shift * (seed + 5) if factor == 4 else 0),
            "ci_low": 0.1,
            "ci_high": 0.95,
            "train_len_tokens": 1024,
        }
        for method, factor in (("unscaled", 1.0), ("yarn", 4.0))
        for seed in seeds
        for at, distance in enumerate((256, 512, 1024, 4096))
    ]
    return pd.DataFrame(rows)


def claims():
    """A ledger of three statements."""
    return pd.DataFrame(
        {
            "number": [1, 2, 3],
            "id": ["one", "two", "three"],
            "source": ["a paper", NASTY, "a note"],
            "statement": ["It turns.", f"It does not turn {NASTY}.", "It decays."],
            "verdict": ["holds", "wrong", "holds"],
            "measured": ["1", "2", "3"],
            "expected": ["one", "two", "three"],
            "command": ["ropelab claims --id one"] * 3,
            "decided_by": ["turns", "turns", "decay"],
            "decided_at": ["1", "0", "3"],
            "evidence": ["arithmetic", "arithmetic", "small trained models"],
        }
    )


def passages():
    """Where one of them is said."""
    rows = [
        (
            "a title",
            "https://example.org/x",
            "Es dreht sich nicht",
            "it does not turn",
            "two",
        )
    ]
    rows += [("another", "javascript:alert(1)", NASTY, NASTY, "two")]
    return pd.DataFrame(rows, columns=["title", "link", "quote", "english", "id"])


def write_run(results, name, tables, command, **changes):
    """A run's folder as the store would write it, without figures."""
    folder = results / changes.get("experiment", "toy") / name
    manifest = {
        "schema": 1,
        "experiment": "toy",
        "version": 1,
        "inputs": {},
        "commit": None,
        "question": f"What is it for {NASTY}?",
        "answer": f"It is {name}.",
        "cannot_show": "anything else",
        "command": command,
        "summary": [{"method": NASTY, "accuracy": 0.123456}],
        "figures": [],
        "config": {"corpus": NASTY, "seeds": [0, 1, 2]},
        "start": "2026-01-02T03:04:05+00:00",
        "seconds": 1.5,
        "packages": {"ropelab": "0.1.0"},
        **changes,
    }
    RUN.write(folder, tables, manifest)
    return folder


def write_results(results):
    """Three comparable runs and a ledger."""
    for at, (name, shift) in enumerate(RUNS):
        seeds = (0,) if name.startswith("third") else (0, 1, 2)
        tables = {"copy_accuracy": accuracies(shift, seeds)}
        write_run(
            results, name, tables, f"ropelab toy --number {at} --corpus '{NASTY}'"
        )
    write_run(
        results,
        "default-00000004",
        {"claims": claims(), "passages": passages()},
        "ropelab claims",
        experiment="claims",
        question="Is it true?",
    )
    return results
