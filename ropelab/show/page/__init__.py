"""Pages for a browser: one page shows finished runs, and another computes while sliders
move.

The page of runs reads manifests and tables, and nothing of the experiments. It chooses
axes and lines by the columns of a table.
"""
