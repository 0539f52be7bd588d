"""How one row of a table is called in sentences, legends and comparisons."""


def method_label(method: str, factor: float) -> str:
    """A method with its factor, where it has one.

    >>> method_label("yarn", 4.0), method_label("unscaled", 1.0)
    ('yarn ×4', 'unscaled')
    """
    return method if factor == 1 else f"{method} ×{factor:g}"
