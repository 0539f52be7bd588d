"""Language models of others, as transformers loads them from disk: no download, no
foreign code.
"""
