"""One model per base and seed: its cells, retrieval by distance, and the answer."""

from functools import partial
from itertools import product

import numpy as np
import pandas as pd

from ropelab.experiments.base_empirical import BaseEmpiricalConfig
from ropelab.experiments.base_empirical.bound import Outcome, first_fails, predictions
from ropelab.math.bounds import Similarity
from ropelab.math.frequencies import inverse_frequencies
from ropelab.math.scaling import RopePlan
from ropelab.models.encoding.rope import Rope
from ropelab.models.tasks.cells import Evaluation, collected
from ropelab.models.tasks.modes import AsTrained
from ropelab.models.tasks.plans import inside_training, training_of
from ropelab.models.tasks.tables import BUCKET, PLACE, accuracies, losses
from ropelab.runs.cell import Values
from ropelab.runs.tables import Tables


def cells(config: BaseEmpiricalConfig) -> list[Evaluation]:
    """Return every task under every base, for every training seed."""
    tasks = [inside_training(config, task) for task in config.tasks]
    return [
        Evaluation(
            subject=training_of(
                config,
                seed,
                partial(rope, config.head_dim, base),
                {"name": "rope", "pairing": "half", "base": base},
            ),
            task=task,
            mode=AsTrained(),
            labels=(("base", base), ("seed", seed)),
            device=config.device,
            # Of evaluation; `config.dtype` is that of training.
            dtype="float32",
            model_name=f"base {base:g}",
        )
        for task, seed, base in product(tasks, config.seeds, config.bases)
    ]


def rope(head_dim: int, base: float) -> Rope:
    """Return unscaled RoPE on whole heads; a function, so that a cell can be pickled."""
    return Rope(RopePlan(inverse_frequencies(head_dim, base)))


def tables(config: BaseEmpiricalConfig, values: Values) -> dict[str, pd.DataFrame]:
    """Return accuracy by distance for each retrieval task, text loss by position, predictions."""
    measured = collected(cells(config), values)
    buckets = measured.pop("text")["buckets"] if "text" in measured else None
    trials = {task: found["trials"] for task, found in measured.items()}
    by_task = {task: accuracy(table, config) for task, table in trials.items()}
    found = {f"{task}_accuracy": table for task, table in by_task.items()}
    if buckets is not None:
        found["text_nll"] = losses(buckets, ["base", "seed", *BUCKET])
    found["predictions"] = predictions(config, trials, by_task, buckets)
    return found


def accuracy(trials: pd.DataFrame, config: BaseEmpiricalConfig) -> pd.DataFrame:
    """Return accuracy by base, seed, distance and context, with the bound's prediction."""
    table = accuracies(trials, ["base", "seed", *PLACE])
    similarity = Similarity.of_head(config.head_dim)
    beyond = table["distance_tokens"] >= table["base"].map(first_fails(config))
    distances = table["distance_tokens"].to_numpy(dtype=float)
    return table.assign(
        # From the first position on at which the sum of cosines is negative for that base.
        predicted=beyond.map({True: "fails", False: "holds"}),
        cosine_sum=similarity.at(distances, np.log(table["base"].to_numpy())),
    )


def answer(tables: Tables) -> str:
    """Say how often the bound was right, and whether it orders the bases."""
    table = tables["predictions"]
    if table.empty:
        return "Only text was measured, which the bound does not speak about."
    judged = table[table["agrees"].notna()]
    if judged.empty:
        return "Nothing can be said: the model with the largest base has not learned to retrieve."
    right = int(judged["agrees"].astype(bool).sum())
    judgements = "bases" if judged["task"].nunique() == 1 else "pairs of base and task"
    sentences = [
        f"The bound is right about {right} of {len(judged)} {judgements} against the largest base"
    ]
    for task, part in judged.groupby("task"):
        below = part[part["distances_beyond"] > 0]
        if len(below):
            beyond, before = (
                f"{below[f'failing_{side}'].sum()} of {below[f'distances_{side}'].sum()} distances"
                for side in ("beyond", "before")
            )
            sentences.append(
                f"{task} fails at {beyond} predicted to fail, and at {before} predicted to hold"
            )
    superficial = judged[judged["outcome"] == Outcome.SUPERFICIAL]
    if len(superficial):
        bases = ", ".join(f"{base:g}" for base in superficial["base"].unique())
        sentences.append(f"text loss stays low while retrieval fails with base {bases}")
    return "; ".join(sentences) + "."


def summary(tables: Tables) -> pd.DataFrame:
    """Return the predictions: a row per base and task."""
    table = tables["predictions"]
    if table.empty:
        return tables["text_nll"].head(12)
    short = {
        "first_failing_position_tokens": "fails_at",
        "maximum_distance_tokens": "reach",
        "text_difference_nats_per_byte": "text_difference",
    }
    columns = ["task", "base", "fails_at", "reach", "accuracy", "text_difference", "outcome"]
    return table.rename(columns=short)[columns].head(12)
