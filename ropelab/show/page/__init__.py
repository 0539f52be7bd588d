"""Pages for a browser: one shows finished runs, the other computes while sliders move.

The page of runs reads manifests and tables, and nothing of the experiments. It chooses
axes and lines by the columns of a table.
"""
