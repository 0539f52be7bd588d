"""Where cells are computed: in this process, in worker processes beside it, or on a Ray cluster.

An experiment hands a phase of cells to its context and knows nothing of this. One torch thread
computes a cell wherever it is, so tables are the same, byte for byte, for any number of workers.
"""
