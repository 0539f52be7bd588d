"""Laws of positions that a language model's code must keep, asked of the code itself.

`doctor` asks a model all laws. `law` says what a law is, and `subject` what it asks of a
model, which `model` finds. The laws are in `batch`, `cached`, `moved`, `eviction`,
`rotation` and `axes`, and what a violation means in `explanations.toml`.
"""
