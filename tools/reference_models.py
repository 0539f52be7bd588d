"""Train the models that come with ropelab: `python tools/reference_models.py [FOLDER]`.

Five seeds of the default model of `ropelab extrapolate`, at 512 tokens of this Python's
standard library. They are written to `ropelab/models/lm/pretrained` with a manifest,
which tests/models/lm/test_pretrained.py compares with a training of its first steps.
Checkpoints are kept in FOLDER (build/reference-models), so that it can be interrupted.
"""

import platform
import sys
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import torch

import ropelab
from ropelab.experiments.extrapolate import ExtrapolateConfig
from ropelab.experiments.extrapolate.pretrained import PRETRAINED_VALUES
from ropelab.experiments.extrapolate.rows import make_trainings
from ropelab.models.lm.model import LanguageModel
from ropelab.models.lm.pretrained import FOLDER, write_pretrained
from ropelab.models.lm.training import train
from ropelab.runs.cell import Advance, silent
from ropelab.runs.machine import count_cores

SEEDS = (0, 1, 2, 3, 4)


def show(title: str, work: float) -> AbstractContextManager[Advance]:
    print(f"training a model, {title} ...", file=sys.stderr)
    return silent(title)


def main(kept: Path) -> None:
    length = PRETRAINED_VALUES["train_len"]
    config = ExtrapolateConfig(train_len=length, test_len=length, seeds=SEEDS)
    models = []
    for training in make_trainings(config, config.geometry()):
        folder = kept / f"seed-{training.seed}"
        folder.mkdir(parents=True, exist_ok=True)
        model = LanguageModel(training.size, training.encoding(), training.seed)
        losses = train(
            model,
            training.batch,
            training.recipe,
            folder,
            partial(show, training.title),
            training.dtype,
            count_cores(),
        )
        weights = {name: value.cpu() for name, value in model.state_dict().items()}
        models.append((training.key, weights, losses))

    made = {
        "command": "make reference-models",
        "day": datetime.now(UTC).date().isoformat(),
        "ropelab": ropelab.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
    write_pretrained(FOLDER, models, made)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("build/reference-models"))
