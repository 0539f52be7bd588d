"""Tasks that models do, measured once for all experiments: cells to compute, and their
tables.
"""
