"""Tables of a config without the lab: all cells first, each behind those that it starts from."""

from ropelab.runs.cell import Context, Values, with_starts


def made(body, config, context: Context) -> dict:
    """The tables of an experiment's body, with the answer's columns as they are computed."""
    for cell in with_starts(body.cells(config)).values():
        context.compute(cell)
    return dict(body.tables(config, Values(context)))
