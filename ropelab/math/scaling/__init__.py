"""Scaling methods: frequencies from a geometry and a length.

`ropelab.math.methods` has them by name.
"""

from ropelab.math.scaling.pairs import LongRope as LongRope
from ropelab.math.scaling.pairs import Proportional as Proportional
from ropelab.math.scaling.pairs import Without as Without
from ropelab.math.scaling.plan import SCALINGS as SCALINGS
from ropelab.math.scaling.plan import RopePlan as RopePlan
from ropelab.math.scaling.plan import Scaling as Scaling
from ropelab.math.scaling.plan import kept_weights as kept_weights
from ropelab.math.scaling.plan import roles as roles
from ropelab.math.scaling.stretching import DynamicNtk as DynamicNtk
from ropelab.math.scaling.stretching import Llama3 as Llama3
from ropelab.math.scaling.stretching import NtkAware as NtkAware
from ropelab.math.scaling.stretching import NtkByParts as NtkByParts
from ropelab.math.scaling.stretching import (
    PositionInterpolation as PositionInterpolation,
)
from ropelab.math.scaling.stretching import Unscaled as Unscaled
from ropelab.math.scaling.stretching import Yarn as Yarn
from ropelab.math.scaling.stretching import YarnPaper as YarnPaper
from ropelab.math.scaling.stretching import ntk_base as ntk_base
