"""Tasks that models do, measured once for all experiments.

grid           buckets of positions, contexts and distances that are measured
corpora, tokens   text in bytes, and in the tokens of a released model
modes        evaluation modes: the encoding at a context of some length
task          the base of the tasks in text, retrieval and needles
plans          the tasks of the experiments, and the data that a model learns for them
cells          models to train and tasks to do, as the cells of a run
tables         from values to tables with intervals, and comparisons
config         fields and checks of configs; light
"""
