"""What a trained model is asked, measured once for all experiments that train models.

grid           where is measured: buckets of positions, contexts, distances
corpora        which text, described so that another process can read it
readers        with which encoding a context of some length is read
text, retrieval   the two kinds of questions, and the values per document or sequence
plans          the questions that experiments ask, and what a model learns for them
cells          models to train and questions to ask them, as the pieces of a run
tables         from such values to tables with intervals
comparisons    the one rule by which two rows are said to differ
config         the fields and checks that configs of such experiments share; light
"""
