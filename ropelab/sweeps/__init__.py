"""Many runs from one file: its cases, what is still to do, a share of it, one table of
all.
"""
