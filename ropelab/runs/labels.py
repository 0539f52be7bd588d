"""Names of the rows of tables in sentences, legends and comparisons.

A row is a method with its factor, on a model of one seed. Its arm says how the model was
made or the method was set: `zero_shot` (as trained), `finetuned`, or one of the arms
below.
"""

import pandas as pd

# The baseline that reads no more tokens at once than the trained length. In the arm
# `finetuned` its model has been trained further at that length, for as many tokens as the
# models with which it is compared.
WINDOW = "sliding_window"
# The predictions of that baseline, mixed with counts of n-grams in all earlier text.
WINDOW_CACHE = f"{WINDOW} + cache"
# The same mixture, with counts in the text inside the window, or in the text before it.
NEAR_CACHE = f"{WINDOW} + near cache"
FAR_CACHE = f"{WINDOW} + far cache"
# The arm of the three rows with counts of n-grams.
CACHE = "cache"
# The arm of methods whose parameters were searched on the model that is evaluated.
SEARCHED = "searched"
# The arm of rows with rounded stages or keys; their method is `<method> + <rounding>`.
ROUNDED = "rounded"
# The label of a released model to which no method is applied. All other rows are compared
# with it.
AS_SHIPPED = "unmodified"


def label_method(method: str, factor: float, arm: str = "zero_shot") -> str:
    """Return a method with its factor if it has one, and its arm if it was searched or
    fine-tuned.

    >>> label_method("yarn", 4.0), label_method("unscaled", 1.0), label_method("pi", 2, "finetuned")
    ('yarn ×4', 'unscaled', 'pi ×2 finetuned')
    """
    label = method
    if factor != 1:
        label += f" ×{factor:g}"
    if arm in (SEARCHED, "finetuned"):
        label += f" {arm}"
    return label


def extract_method(label: str) -> str:
    """Return the method in a label, without parameters, factor and arm.

    >>> extract_method("yarn(beta_fast=8) ×4 finetuned"), extract_method("unscaled finetuned")
    ('yarn', 'unscaled')
    """
    return label.split("(")[0].split(" ")[0]


def label_rows(table: pd.DataFrame) -> list[str]:
    """Return the label of every row of a table with the columns method, factor and
    arm.
    """
    return list(map(label_method, table["method"], table["factor"], table["arm"]))


def write_roughly(value: float, digits: int = 2) -> str:
    """Write a number for a sentence: rounded to `digits` significant digits, and without
    an exponent if it is large.

    >>> write_roughly(487123.4), write_roughly(0.00123), write_roughly(3.7e-06)
    ('490,000', '0.0012', '3.7e-06')
    >>> write_roughly(61.3, 1), write_roughly(0.00063, 1)
    ('60', '0.0006')
    """
    text = f"{value:.{digits}g}"
    return f"{float(text):,.0f}" if abs(value) >= 10 else text
