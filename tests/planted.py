"""A tiny run of every experiment, and such runs under the names of the default ones.

    python -m tests.planted RESULTS    as if every default run were finished in there

Whoever has run `make all-figures` has finished runs in the checkout's results. No test
may depend on them, so CI plants some before it runs the tests.
"""

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from ropelab import experiments
from ropelab.lab import Lab
from ropelab.plan import Plan
from ropelab.runs import store
from ropelab.runs.config import Label

TINY: dict[str, Any] = {
    "layers": 1,
    "width": 16,
    "heads": 2,
    "head_dim": 8,
    "steps": 2,
    "tokens_per_step": 256,
    "documents": 3,
    "sequences": 2,
    "device": "cpu",
}
VALUES: dict[str, dict[str, Any]] = {
    "freqs": {"head_dim": 8},
    "precision": {"length": 256, "long_lengths": (512,), "samples": 16, "draws": 2},
    "base": {"context": (64, 256), "head_dim": 64},
    "base-empirical": {**TINY, "bases": (10, 1000), "train_len": 256},
    "encodings": {
        **TINY,
        "encodings": ("rope", "alibi"),
        "train_len": 64,
        "test_len": 256,
    },
    "spectrum": {
        **TINY,
        "schemes": ("unscaled", "one(period=1e6)"),
        "train_len": 64,
        "test_len": 128,
        "draws": 4,
    },
    "extrapolate": {
        "methods": ("unscaled", "yarn", "ntk"),
        "train_len": 64,
        "test_len": 256,
        "head_dim": 8,
        "steps": 2,
        "documents": 3,
        "sequences": 2,
        "device": "cpu",
    },
    # Its methods are the defaults, in which ntk stands with two factors.
    "evaluate": {
        "context": 256,
        "tasks": ("text",),
        "documents": 3,
        "device": "cpu",
    },
}
WITH_CORPUS = ("base-empirical", "encodings", "spectrum", "extrapolate", "evaluate")


# Default runs that need to be told something.
ASKED: dict[str, dict[str, Any]] = {"evaluate": {"model": "."}}


def make_runs(results: Path, corpus: str, figures: bool = True) -> None:
    """Make one run of each experiment; a tiny model of bytes stands for a released one."""
    from tests.models.released.tiny import reader_of_bytes

    lab = Lab(results, figures=figures)
    for name, given in VALUES.items():
        values = dict(given)
        if name in WITH_CORPUS:
            values["corpus"] = corpus
        if name == "evaluate":
            model = results.parent / "model"
            model.mkdir(parents=True)
            values["model"] = reader_of_bytes(model, bos=True)
        lab.run(lab.prepare(name, values))


def plant(results: Path) -> list[Path]:
    """Store each of those runs as if it were the finished default run."""
    from tests.conftest import written

    planted = []
    with tempfile.TemporaryDirectory() as place:
        corpus = Path(place, "corpus")
        corpus.mkdir()
        made = Path(place, "results")
        make_runs(made, written(corpus, 0))

        for folder, manifest in store.find_finished(made):
            experiment = experiments.load(manifest["experiment"])
            if experiment.name in ASKED:
                continue
            plan = Plan(experiment, experiment.config(), Label())
            inputs = plan.config.inputs()
            default = store.RunFolder(
                results,
                experiment.name,
                experiment.version,
                plan.config,
                inputs,
                plan.label,
            )
            shutil.copytree(folder, default.path)
            store.RUN.describe(
                default.path / store.RUN.file, {**manifest, **default.facts}
            )
            assert default.find() is not None
            planted.append(default.path)
    return planted


if __name__ == "__main__":
    for path in plant(Path(sys.argv[1])):
        sys.stdout.write(f"{path}\n")
