"""The tasks of all experiments and the models that they train, made from their configs.

The functions of this file turn the options of a config (lengths, numbers of documents,
the shape of a model) into descriptions of tasks (ropelab/models/tasks/task.py) and
trainings (ropelab/models/lm/trained.py).
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ropelab.models.encoding.base import Encoding
from ropelab.models.lm.corpus import VOCABULARY, CorpusRef
from ropelab.models.lm.lists import LISTS
from ropelab.models.lm.model import ModelSize
from ropelab.models.lm.source import Mixture
from ropelab.models.lm.trained import Training
from ropelab.models.lm.training import FIRST_WINDOW, Recipe
from ropelab.models.tasks import grid
from ropelab.models.tasks.config import EvaluationConfig, ShapedConfig, TaskConfig
from ropelab.models.tasks.needles import NEEDLES, Needles
from ropelab.models.tasks.retrieval import Retrieval
from ropelab.models.tasks.task import Texts
from ropelab.runs.own import find_own, fingerprint_source, write_reference

# The share of training rows with a list, if a task asks for lists.
LIST_SHARE = 0.5


def make_task_beyond_training(
    config: EvaluationConfig, task: str, depths: tuple[int, ...] = ()
) -> Texts | Retrieval | Needles:
    """Return a task at lengths up to the longest tested length.

    Args:
        config: the config of the run.
        task: the name of the task.
        depths: the depths of hidden keys and lists in their text, in percent.
    """
    train = config.grid_len
    test = config.longest
    corpus = config.text
    contexts = tuple(grid.list_retrieval_contexts(train, test))
    if task == "text":
        return Texts(
            corpus=corpus,
            documents=config.documents,
            buckets=tuple(grid.list_buckets(train, test)),
            contexts=tuple(grid.list_context_lengths(train, test)),
            last=grid.choose_last_window(train),
            # Parameters are searched beyond the trained length, and only on models that
            # are trained here.
            beyond=train if isinstance(corpus, CorpusRef) else None,
        )
    if task in NEEDLES:
        return Needles(
            name=task,
            contexts=contexts,
            depths=depths,
            sequences=config.sequences,
            corpus=corpus,
        )

    retrieval = Retrieval(
        name=task,
        places=grid.pair_places(grid.list_retrieval_distances(train, test), contexts),
        sequences=config.sequences,
        corpus=corpus,
    )
    function_of_user = find_own("tasks", task)
    if function_of_user is None:
        return retrieval
    # The reference of a function is `module:name`. This name becomes the name of the
    # task.
    reference = write_reference(function_of_user)
    _, _, name = reference.partition(":")
    function_and_source = (reference, fingerprint_source(function_of_user))
    return replace(retrieval, name=name.replace(".", "_"), own=function_and_source)


def make_task_inside_training(config: TaskConfig, task: str) -> Texts | Retrieval:
    """Return a task at lengths that were all trained."""
    length = config.train_len

    if task == "text":
        return Texts(
            corpus=config.text,
            documents=config.documents,
            buckets=tuple(grid.list_inner_buckets(length)),
            beyond=0,
        )
    return Retrieval(
        name=task,
        places=grid.pair_places(grid.list_inner_distances(length), [length]),
        sequences=config.sequences,
        corpus=config.text,
    )


def make_mixture(config: TaskConfig) -> Mixture:
    """Return the mixture of the training data, with lists if a task asks for lists."""
    asks_for_lists = any(task in LISTS for task in config.tasks)
    return Mixture(lists=LIST_SHARE if asks_for_lists else 0)


def describe_training(
    config: ShapedConfig,
    seed: int,
    encoding: Callable[[], Encoding],
    encoding_key: dict[str, Any],
    called: str,
    first_window: int = FIRST_WINDOW,
    fused: bool = True,
) -> Training:
    """Describe a model of an experiment whose config gives its shape.

    The arguments that are not named here are the fields of `Training`.

    Args:
        config: the config of the run.
        first_window: the tokens in a row of the first training steps.
    """
    return Training(
        called=called,
        corpus=config.text,
        mixture=make_mixture(config),
        size=make_model_size(config),
        recipe=make_recipe(config, first_window),
        seed=seed,
        encoding=encoding,
        encoding_key=encoding_key,
        dtype=config.dtype,
        device=config.device,
        fused=fused,
    )


def make_model_size(config: ShapedConfig) -> ModelSize:
    return ModelSize(
        vocabulary=VOCABULARY,
        layers=config.layers,
        width=config.width,
        heads=config.heads,
        head_dim=config.head_dim,
    )


def make_recipe(config: ShapedConfig, first_window: int = FIRST_WINDOW) -> Recipe:
    """Return the training recipe of a config.

    The rows of the first steps have `first_window` tokens.
    """
    return Recipe(
        steps=config.steps,
        window=config.train_len,
        tokens_per_step=config.tokens_per_step,
        matrix_rate=config.lr_scale * Recipe.matrix_rate,
        other_rate=config.lr_scale * Recipe.other_rate,
        first_window=min(first_window, config.train_len),
    )
