"""vLLM: what it does otherwise than SGLang (servers.py has the steps that both share).

Read from vllm 0.33.0: model_executor/layers/rotary_embedding,
transformers_utils/config.py and config/model.py.
"""

from ropelab.math.scaling import NtkAware
from ropelab.readers import scaling_types
from ropelab.readers.families import read_table
from ropelab.readers.scaling_types import MadeScaling
from ropelab.readers.servers import SERVER_RULES, VLLM_LENGTHS, Server, read_lengths
from ropelab.readers.settings import Settings
from ropelab.readers.spec import (
    NotModelledError,
    RefusedError,
    RopeSpec,
    require_number,
    require_whole,
)
from ropelab.readers.trace import MAXIMUM, ORIGINAL

_NAMES: dict[str, list[str]] = read_table("names")["vllm"]
# The scaling types whose factor does not multiply the length.
TYPES_WITHOUT_LENGTH_FACTOR = tuple(_NAMES["types_without_length_factor"])
# Parts of the names of model types whose files state the length after scaling.
TYPES_WITH_SCALED_LENGTH = tuple(_NAMES["types_with_scaled_length"])
# The beginnings of model types that pass mrope_positions_factor=1, so that the table is
# not made longer, unless videos are pruned.
TYPES_WITH_USUAL_TABLE = tuple(_NAMES["types_with_usual_table"])


class Vllm(Server):
    def make_spec(self, settings: Settings) -> RopeSpec:
        # The types under both keys may differ if they mean the same scaling.
        older_type = settings.get("type")
        newer_type = settings.get("rope_type")
        are_different = older_type not in (None, newer_type)
        mean_the_same = (older_type, newer_type) in scaling_types.SAME_TYPES
        if are_different and not mean_the_same:
            raise RefusedError(
                f"conflict between rope_type={newer_type} and type={older_type}"
            )

        # This type is renamed after loading, and then filled in as transformers does it.
        if newer_type == "su":
            settings.values["rope_type"] = "longrope"
            paths = (ORIGINAL, f"rope_scaling.{ORIGINAL}", MAXIMUM)
            settings.put_first_found(ORIGINAL, paths, None, "")
        drop_unforwarded(settings)
        return super().make_spec(settings)

    def limit_length(self, settings: Settings) -> tuple[int, int]:
        trace = settings.trace
        length = min(read_lengths(trace, VLLM_LENGTHS), default=2048)
        if trace.language_part.get("model_max_length"):
            length = require_whole(trace.get("model_max_length"), "model_max_length")

        scaling_type = settings.get("rope_type")
        if scaling_type == "longrope":
            original = trace.get(ORIGINAL)
            if original is not None:
                return require_whole(original, "original length"), 0

        # _get_and_verify_max_len does not multiply a length that the file states after
        # scaling.
        is_scaled = any(
            fragment in trace.model_type for fragment in TYPES_WITH_SCALED_LENGTH
        )
        factor = settings.get("factor")
        if is_scaled or scaling_type in TYPES_WITHOUT_LENGTH_FACTOR or factor is None:
            return length, 0
        return int(length * require_number(factor, "factor")), length


def drop_unforwarded(settings: Settings) -> None:
    """Drop the keys that a model file of vLLM does not hand on (gpt-oss)."""
    handed_on = settings.trace.family.passed_yarn_keys
    if not handed_on:
        return

    # The model file has a default for one of the keys that it hands on.
    settings.needs(*(name for name in handed_on if name != "truncate"))
    for name in settings.values.keys() - {*handed_on, "rope_theta"}:
        if name != "rope_type":
            settings.mark(name, "ignored", "its model file does not hand it on")
        del settings.values[name]
    settings.values["rope_type"] = "yarn"


@scaling_types.scaling_type("vllm", "yarn", "telechat3-yarn")
def make_vllm_yarn(settings: Settings) -> MadeScaling:
    """Return YaRN by vLLM's rules."""
    factor = settings.number("factor")
    trained = settings.original()
    if settings.get("rope_type") == "telechat3-yarn":
        return scaling_types.make_yarn(
            settings, factor, scaling_types.yarn_attention(factor, 0.7)
        )

    # The table of models with position axes is longer, and the ramp comes from its
    # length.
    is_lengthened = not settings.trace.model_type.startswith(TYPES_WITH_USUAL_TABLE)
    if settings.get("mrope_section") and is_lengthened:
        trained *= 4
    # attention_factor counts, as in transformers.
    attention = scaling_types.find_attention(settings, factor)
    return scaling_types.make_yarn(settings, factor, attention, trained)


@scaling_types.scaling_type("vllm", "ntk")
def make_vllm_ntk(settings: Settings) -> MadeScaling:
    """Multiply the base by the factor, and divide each frequency by factor^(2/width) on
    top.
    """
    if settings.get("mixed_b") is not None:
        raise NotModelledError("ntk with mixed_b")

    server = Vllm()
    factor = settings.number("factor")
    head_dim = server.read_head_dim(settings.trace)
    pairs = server.find_width(settings, head_dim) // 2
    # The divisor of pair i is factor^(i / pairs), from the base, times factor^(1 / pairs).
    divisors = tuple(factor ** (pair / pairs) for pair in range(1, pairs + 1))
    return scaling_types.make_longrope((divisors, divisors), 1.0, settings.longest)


@scaling_types.scaling_type("vllm", "dynamic")
def make_vllm_dynamic(settings: Settings) -> MadeScaling:
    """Raise the base at every length, to the base that the longest context needs."""
    if "alpha" in settings.values:
        return scaling_types.raise_base(settings)

    longest = settings.longest
    factor = settings.number("factor")
    key = "max_trained_positions"
    trained = require_whole(settings.get(key, longest), key)
    # Without max_trained_positions the multiplier is 1: nothing is scaled.
    multiplier = factor * longest / trained - (factor - 1)
    if trained == longest:
        settings.mark("factor", "ignored", "the multiplier is 1 at this length")
    return NtkAware(factor=multiplier), 1.0, longest


Vllm.rules = SERVER_RULES | scaling_types.read_rules("vllm")
