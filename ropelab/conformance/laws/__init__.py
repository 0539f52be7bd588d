"""Laws of positions that a language model's code must keep, asked of the code itself.

`law` says what a law is, `subject` what it asks of a model, `batch`, `cached`, `moved`,
`eviction`, `rotation` and `axes` are the laws, `explanations.toml` their words, `model`
finds the model, and `doctor` asks it all of them.
"""
