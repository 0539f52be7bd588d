"""Released models: language models from Hugging Face, as transformers loads them.

Nothing is downloaded, and no code in a model's folder is run.
"""
