"""Pages for a browser: one page shows finished runs, and another computes while sliders
move.

The page of runs is made from manifests and tables alone, without code of the experiments.
Axes and lines of a plot are chosen by the columns of a table.
"""
