"""Numbers that rotary codes often have by mistake, from usual.toml.

For example, a wrong base is mostly the base of some published model.
"""

from ropelab.runs.files import read_table_beside

USUAL = read_table_beside(__file__)
# Formats that an intermediate number may be rounded to.
HALF_FORMATS = USUAL["formats"]
# Factors of scaling methods.
FACTORS = USUAL["factors"]
