"""From a config to the pieces of a run: a model per scheme and seed, and what it is asked."""

from collections.abc import Iterator
from functools import partial

from ropelab.experiments.frequencies.config import FrequenciesConfig
from ropelab.math.frequencies import Geometry
from ropelab.math.scaling import Scaling, Without
from ropelab.models.encoding.base import Encoding, unfused
from ropelab.models.lm.trained import Training
from ropelab.models.methods.method import PAIRING, Scaled
from ropelab.models.tasks.cells import Asked
from ropelab.models.tasks.plans import beyond_training, learned, model_size, recipe_of
from ropelab.models.tasks.readers import Reader, Under

LEARNING_VERSION = 1
"""Raise it when a scheme starts or learns differently: its models are then trained anew."""
KEPT = "none"
"""What is called removed where a model is read as it was trained."""


def questions(config: FrequenciesConfig) -> list[Asked]:
    """Every task of every row, seed by seed, so that an interrupted run has whole comparisons."""
    return [
        Asked(
            subject=training(config, scheme, seed),
            trial=trial,
            reader=reader,
            labels=(("scheme", scheme.label), ("removed", removed), ("seed", seed)),
            device=config.device,
            dtype="float32",
            model_name=scheme.label,
        )
        for seed in config.seeds
        for trial in (beyond_training(config, task) for task in config.tasks)
        for scheme, removed, reader in rows(config)
    ]


def rows(config: FrequenciesConfig) -> Iterator[tuple[Scaling, str, Reader]]:
    """Scheme, band removed from the trained model, and how it is read; the first scheme last."""
    geometry = config.geometry()
    schemes = tuple(config.parsed_schemes().values())
    for scheme in schemes:
        yield scheme, KEPT, Under(Scaled(scaling=scheme), geometry)
    for band in config.bands:
        without = Without(band=band, inner=schemes[0])
        yield schemes[0], band, Under(Scaled(scaling=without), geometry)


def training(config: FrequenciesConfig, scheme: Scaling, seed: int) -> Training:
    """The description of one model: a scheme and a seed."""
    task, geometry = learned(config), config.geometry()
    return Training(
        task=task,
        size=model_size(config, task.vocabulary),
        recipe=recipe_of(config, config.first_window),
        seed=seed,
        encoding=partial(encoding_of, scheme, geometry),
        encoding_key={
            "frequencies": scheme.label,
            "base": geometry.base,
            "trained_len": geometry.trained_len,
            "pairing": PAIRING,
            "version": LEARNING_VERSION,
        },
        dtype=config.dtype,
    )


def encoding_of(scheme: Scaling, geometry: Geometry) -> Encoding:
    """The encoding that a model is trained with; separate products are faster at short windows."""
    return unfused(Scaled(scaling=scheme).encoding(geometry, geometry.trained_len))
