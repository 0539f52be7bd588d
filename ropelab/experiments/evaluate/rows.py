"""Rows of a run: evaluation modes of the model; and the cells of all tasks."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from ropelab.experiments.evaluate import EvaluateConfig
from ropelab.models.methods.attention import UNSCALED
from ropelab.models.tasks.cells import Asked, Checked
from ropelab.models.tasks.plans import beyond_training
from ropelab.models.tasks.readers import Reader, Sliding, Under, Unmodified
from ropelab.runs.labels import AS_SHIPPED, WINDOW


@dataclass(frozen=True)
class Row:
    """One evaluation mode: its name in tables, and how the model reads in it."""

    method: str
    factor: float
    reader: Reader

    @property
    def labels(self) -> tuple[tuple[str, object], ...]:
        """The first columns of its rows; nothing was drawn and nothing tuned."""
        return (
            ("method", self.method),
            ("factor", self.factor),
            ("seed", 0),
            ("arm", "zero_shot"),
        )


def rows(config: EvaluateConfig) -> Iterator[Row]:
    """As shipped first, which all others are compared with; the sliding window last."""
    yield Row(AS_SHIPPED, 1.0, Unmodified())
    # Where the checkpoint scales nothing, unscaled is the same, and is measured once.
    unmodified = config.facts.rope_type == "default"
    for method in config.parsed_methods():
        same = unmodified and method.label == UNSCALED.label
        reader = Unmodified() if same else Under(method, config.geometry())
        yield Row(method.label, method.reach, reader)
    yield Row(WINDOW, 1.0, Sliding(Unmodified(), config.window))


def evaluations(config: EvaluateConfig, task: str) -> list[Asked]:
    """A task in every mode; each starts from the check of the model, and from the task's probe."""
    model, asked = config.reference(), beyond_training(config, task, config.depths)
    every = list(rows(config))
    checked = Checked(
        subject=model,
        readers=tuple(dict.fromkeys(row.reader for row in every)),
        train_len=config.train_len,
        longest=config.context,
        limit_memory=config.limit_memory,
    )
    easy = asked.inside(config.train_len)
    evaluation = partial(Asked, subject=model, checked=checked)
    probe = None
    if easy is not None:
        probe = evaluation(trial=easy, reader=every[0].reader, labels=every[0].labels)
    cells = [
        evaluation(
            trial=asked.at_the_end(config.context) if row.method == WINDOW else asked,
            reader=row.reader,
            labels=row.labels,
            probe=probe,
        )
        for row in every
    ]
    # At the trained length as shipped, a probe of pass keys is all of the task.
    return [probe if probe and cell.key == probe.key else cell for cell in cells]
