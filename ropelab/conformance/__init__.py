"""A model's code against what was configured.

`check` compares a rotary code's answers with its configuration, `vectors` writes what
an engine must compute, and `laws` asks a whole model the laws of positions (`doctor`).
"""
