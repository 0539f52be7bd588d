"""A model's code against what was configured.

`check` compares a rotary code's answers with its configuration, `vectors` writes what
an engine must compute, and `laws` asks a whole model the laws of positions (`doctor`).

How `check` goes, by its files: `expected` reads the configuration; `calls` asks a
function, `rotary_classes` a class of transformers, `stored` a file of arrays;
`rotations` reads cos and sin of every pair off the answers (`observation`); `diagnosis`
compares them with the right cos and sin, and calls the remaining files to name the
mistake.
"""
