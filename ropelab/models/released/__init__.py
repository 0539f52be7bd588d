"""Language models of others, as transformers loads them from disk.

Nothing is downloaded, and no foreign code runs.
"""
