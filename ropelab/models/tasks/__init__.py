"""Tasks that models do, measured once for all experiments: cells to compute, tables made from them.

`modes` are the encodings at a context of some length, `plans` the tasks of the experiments, with
the data that a model learns for them.
"""
