"""The text below a figure, in indexes, on the page and in docs/notes."""

from collections.abc import Mapping

from ropelab.runs.files import read_table_beside

# The captions by the name of the figure. Those of an experiment come before those of any.
CAPTIONS: Mapping[str, Mapping[str, str]] = read_table_beside(__file__)


def find_caption(figure: str, experiment: str = "any") -> str:
    """Return the caption of a figure of an experiment; empty if it has none.

    Figures of searched and of fine-tuned models have the same captions as the others.
    Figures of two experiments may have one name.
    """
    name = figure.removesuffix("_searched").removesuffix("_finetuned")
    own_captions = CAPTIONS.get(experiment, {})
    return own_captions.get(name, CAPTIONS["any"].get(name, ""))
