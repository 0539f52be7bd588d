"""How one row of a table is called in sentences, legends and comparisons."""

import pandas as pd

WINDOW = "sliding_window"
"""The baseline that reads no more than the trained length; its rows stand in the zero-shot arm."""
SEARCHED = "searched"
"""The arm of methods whose knobs were chosen on the model that is measured."""

AS_SHIPPED = "as_shipped"
"""A model given, exactly as its configuration has it: what everything is compared with."""


def method_label(method: str, factor: float, arm: str = "zero_shot") -> str:
    """A method with its factor, where it has one, and its arm, if it was searched or fine-tuned.

    >>> method_label("yarn", 4.0), method_label("unscaled", 1.0), method_label("pi", 2, "finetuned")
    ('yarn ×4', 'unscaled', 'pi ×2 finetuned')
    """
    scaled = method if factor == 1 else f"{method} ×{factor:g}"
    return f"{scaled} {arm}" if arm in (SEARCHED, "finetuned") else scaled


def name_in(label: str) -> str:
    """The name of the method in a label, without knobs, factor and arm.

    >>> name_in("yarn(beta_fast=8) ×4 finetuned"), name_in("pi ×2"), name_in("unscaled finetuned")
    ('yarn', 'pi', 'unscaled')
    """
    return label.split("(")[0].split(" ")[0]


def row_labels(table: pd.DataFrame) -> list[str]:
    """The label of every row of a table with the columns method, factor and arm."""
    columns = (table["method"], table["factor"], table["arm"])
    return [method_label(*row) for row in zip(*columns, strict=True)]


def roughly(value: float) -> str:
    """A number for a sentence: two digits, written out where it is large.

    >>> roughly(487123.4), roughly(0.00123), roughly(3.7e-06)
    ('490,000', '0.0012', '3.7e-06')
    """
    text = f"{value:.2g}"
    return f"{float(text):,.0f}" if abs(value) >= 10 else text
