"""Many runs from one file: the cases of the file, the work that is left to do, one
machine's share of this work, and one table of all runs.
"""
