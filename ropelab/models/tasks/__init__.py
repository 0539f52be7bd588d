"""Tasks that models do, measured once for all experiments.

grid           buckets of positions, contexts and distances that are measured
corpora, tokens   text in bytes, and in the tokens of a released model
readers        evaluation modes: with which encoding a context of some length is read
text, retrieval, needles   the tasks, and their values per document or sequence
plans          the tasks of the experiments, and what a model learns for them
cells          models to train and tasks to do, as the cells of a run
tables, documents, comparing   from values to tables with intervals, and comparisons
config         fields and checks of configs; light
"""
