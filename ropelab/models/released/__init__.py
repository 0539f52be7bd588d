"""Other people's language models, as transformers loads them, behind the interface of evaluation.

Only what is on disk is read: nothing is downloaded, and no code from a model's folder is run.
"""
