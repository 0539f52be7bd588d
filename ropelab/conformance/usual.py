"""Numbers that rotary codes often have by mistake, from usual.toml.

A wrong base, for example, is mostly one of those that published models have.
"""

from ropelab.runs.files import read_table_beside

USUAL = read_table_beside(__file__)
# Formats that an intermediate number may be rounded to.
HALF_FORMATS = USUAL["formats"]
# Factors of scaling methods.
FACTORS = USUAL["factors"]
