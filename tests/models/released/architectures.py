"""Which architectures of transformers can be served, and how that is known.

    python -m tests.models.released.architectures            where docs/models.md differs
    python -m tests.models.released.architectures --write    write docs/models.md

A tiny random model of each is read by every method that transformers has, once behind
our interface and once by transformers' own forward pass with the same method in its
configuration.
"""

import copy
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM

from ropelab.math.methods import parse_scaling
from ropelab.math.scaling.plan import RopePlan
from ropelab.models.encoding.rope import Rope
from ropelab.models.released.loading import refusing
from ropelab.models.released.model import ReleasedModel
from ropelab.models.released.positions import UNMODIFIED, PairLayout
from ropelab.runs.errors import InputError
from tests.models.released.tiny import TRAINED, apart, logits, theirs, tokens, untouched

DOCUMENT = Path(__file__).parents[3] / "docs" / "models.md"
BEGIN, END = "<!-- architectures -->", "<!-- end of architectures -->"
LENGTH = 160
NEAR = 2e-4
"""Results agree within this share of their spread: float32 and a different order of products."""
MOVED = 1e-3
"""What a method changes at least: agreement would say nothing about one that changes less."""

NO_HEAD_DIM = {"head_dim": None}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2}
LOCAL_EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
FINE_EXPERTS = {
    **EXPERTS,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 16,
}
ROUTED = {
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
}
LATENT = {
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
    "num_key_value_heads": 4,
    "head_dim": None,
}
DEEPSEEK = {**LATENT, **ROUTED}
TWO_KINDS = {
    "layer_types": ["sliding_attention", "full_attention"],
    "sliding_window": 24,
}
LINEAR = {
    "layer_types": ["linear_attention", "full_attention"],
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 2,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
}
PLAIN = {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}

ARCHITECTURES: dict[str, dict[str, Any]] = {
    "apertus": PLAIN,
    "arcee": {},
    "bitnet": NO_HEAD_DIM,
    "codegen": {"rotary_dim": 8, "head_dim": None, "num_attention_heads": 4},
    "cohere": {},
    "cohere2": TWO_KINDS,
    "deepseek_v2": DEEPSEEK,
    "deepseek_v3": DEEPSEEK,
    "diffllama": {},
    "ernie4_5": {},
    "exaone4": TWO_KINDS,
    "falcon": NO_HEAD_DIM,
    "gemma": {},
    "gemma2": TWO_KINDS,
    "gemma3_text": TWO_KINDS,
    "gemma4_text": {
        **TWO_KINDS,
        "num_kv_shared_layers": 0,
        "hidden_size_per_layer_input": 8,
        "vocab_size_per_layer_input": 97,
    },
    "glm": {},
    "glm4": {},
    "glm4_moe": ROUTED,
    "gpt_neox": {"rotary_pct": 0.5, "head_dim": None},
    "gpt_neox_japanese": NO_HEAD_DIM,
    "gpt_oss": {**LOCAL_EXPERTS, **TWO_KINDS, **PLAIN},
    "gptj": {"rotary_dim": 8, "head_dim": None},
    "granite": {},
    "granitemoe": LOCAL_EXPERTS,
    "helium": {"head_dim": 8},
    "hunyuan_v1_dense": {},
    "lfm2": {"layer_types": ["conv", "full_attention"], "head_dim": None},
    "llama": {},
    "llama4_text": {
        "num_local_experts": 2,
        "num_experts_per_tok": 1,
        "attention_chunk_size": 24,
        "intermediate_size_mlp": 48,
    },
    "mimo_v2_flash": {**TWO_KINDS, "head_dim": 24},
    "minicpm3": LATENT,
    "minimax_m2": {**LOCAL_EXPERTS, "rotary_dim": 8},
    "ministral3": {
        "rope_parameters": {
            **PLAIN["rope_parameters"],
            "llama_4_scaling_beta": 0.1,
            "original_max_position_embeddings": 64,
        }
    },
    "mistral": {"sliding_window": 24},
    "mixtral": LOCAL_EXPERTS,
    "modernbert-decoder": {
        "local_attention": 24,
        "global_attn_every_n_layers": 2,
        "head_dim": None,
    },
    "nanochat": {},
    "nemotron": {},
    "olmo": {},
    "olmo2": {},
    "olmo3": TWO_KINDS,
    "olmoe": {**EXPERTS, "head_dim": None},
    "persimmon": NO_HEAD_DIM,
    "phi": NO_HEAD_DIM,
    "phi3": {"original_max_position_embeddings": TRAINED, "head_dim": None},
    "phimoe": {**LOCAL_EXPERTS, "head_dim": None},
    "qwen2": {},
    "qwen2_moe": FINE_EXPERTS,
    "qwen3": {},
    "qwen3_5_text": LINEAR,
    "qwen3_moe": FINE_EXPERTS,
    "qwen3_next": {**LINEAR, **FINE_EXPERTS},
    "recurrent_gemma": {"block_types": ["recurrent", "attention"], "lru_width": 32},
    "seed_oss": {},
    "smollm3": {"no_rope_layers": [1, 1]},
    "stablelm": {"partial_rotary_factor": 0.5, "head_dim": None},
    "starcoder2": {},
}
"""transformers' names, and what a tiny one needs beside the common sizes."""
REFUSED = ("bloom", "gpt2", "jamba", "mamba", "opt")

WITHOUT_COMPARISON = {("phimoe", "longrope")}
"""transformers reads these by the short factors at any length."""

METHODS = ("unscaled", "linear", "dynamic", "yarn", "longrope", "llama3")
"""transformers' rope types; ropelab knows the first three as unscaled, pi and dynamic_ntk."""


@dataclass(frozen=True)
class Served:
    """How one architecture fared.

    Attributes:
        unmodified: how far it is from transformers' own model, over the spread of logits.
        methods: the same by method; None where transformers has no such model to compare with.
        closed: why no method can be put in, empty if one can.
        in_parts: whether the model is read in parts when the context is long.
        parts: how far that is from one pass, 0 where it is not done.
        sharpens: whether log n can be put in.
        layout: the features that rotate, where ReRoPE and Self-Extend can be put in; else `no`.
    """

    unmodified: float
    methods: dict[str, float | None]
    closed: str
    in_parts: bool
    parts: float
    sharpens: bool
    layout: str

    def mark(self, method: str) -> str:
        """`=` where ours is transformers' result, `own` where it has none, `no` where
        we refuse.
        """
        if method not in self.methods:
            return "no"
        return "own" if self.methods[method] is None else "="


def served(model_type: str, folder: Path) -> Served:
    """Build, save, load and compare a tiny model.

    Raises:
        InputError: it is refused.
    """
    with refusing("cannot build", model_type):
        reference = untouched(model_type, **ARCHITECTURES.get(model_type, {}))
        reference.save_pretrained(folder)
    model, read = ReleasedModel(folder), tokens(LENGTH, rows=1)
    read = read[:, :TRAINED] if model.positions.longest else read
    unmodified = apart(logits(model, read), theirs(reference, read))
    methods = (
        {}
        if model.objection_to_plans
        else {m: _method(model, reference, m) for m in METHODS}
    )
    model.encoding = UNMODIFIED
    unmodified = max(unmodified, apart(logits(model, read), theirs(reference, read)))
    return Served(
        unmodified=unmodified,
        methods=methods,
        closed=model.objection_to_plans,
        in_parts=model.in_parts,
        parts=_list_parts(model, read),
        sharpens=model.capabilities.calls_attention,
        layout="no" if model.objection_to_plans else named(model.capabilities.layout),
    )


def named(layout: PairLayout | None) -> str:
    """A layout in the document; `no` for none."""
    if layout is None:
        return "no"
    return f"{layout.pairing}, last" if layout.rotates_last else layout.pairing


@torch.inference_mode()
def _list_parts(model: ReleasedModel, read: torch.Tensor) -> float:
    """How far hidden states read in parts are from those of one pass; windows end in
    between.
    """
    whole = model.hidden_states(read)
    return apart(model.pass_tokens(read, longest=34), whole) if model.in_parts else 0.0


def _method(model: ReleasedModel, reference: Any, method: str) -> float | None:
    """How far a method is from transformers' own."""
    geometry = model.facts.geometry()
    plan = parse_scaling(_typed(method, geometry.pairs), 4.0).plan(geometry, LENGTH)
    model.encoding = Rope(plan)
    own = _with_method(reference, method, plan, geometry.pairs)
    if own is None or (reference.config.model_type, method) in WITHOUT_COMPARISON:
        return None
    read = tokens(LENGTH, rows=1)
    expected = theirs(own, read)
    if method != "unscaled" and apart(expected, theirs(reference, read)) < MOVED:
        return None  # this architecture's code takes no notice of the method
    return apart(logits(model, read), expected)


def _factors(pairs: int) -> tuple[list[float], list[float]]:
    return [1.0 + 0.1 * i for i in range(pairs)], [2.0 + 0.5 * i for i in range(pairs)]


def _typed(method: str, pairs: int) -> str:
    if method != "longrope":
        return "dynamic_ntk(factor=4)" if method == "dynamic" else method
    short, long = _factors(pairs)
    return f"longrope(short_factor={short}, long_factor={long})"


def _with_method(reference: Any, method: str, plan: RopePlan, pairs: int) -> Any:
    """The same weights under a method of transformers' own; None where it has no such
    model.
    """
    if not getattr(reference.config, "rope_parameters", None):
        return None
    short, long = _factors(pairs)
    wanted = {
        "rope_type": "default" if method == "unscaled" else method,
        "factor": 4.0,
        "original_max_position_embeddings": TRAINED,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "short_factor": short,
        "long_factor": long,
    }
    keys = {
        "unscaled": (),
        "linear": ("factor",),
        "dynamic": ("factor",),
        "yarn": ("factor", "original_max_position_embeddings"),
        "longrope": (
            "factor",
            "original_max_position_embeddings",
            "short_factor",
            "long_factor",
        ),
        "llama3": (
            "factor",
            "original_max_position_embeddings",
            "low_freq_factor",
            "high_freq_factor",
        ),
    }
    config = copy.deepcopy(reference.config)
    rope = config.rope_parameters
    place = rope.get("full_attention", rope)
    place.update({key: wanted[key] for key in ("rope_type", *keys[method])})
    # takes factors on cos and sin from keys of its own
    if config.model_type == "phimoe":
        place["long_mscale"] = place["short_mscale"] = plan.attention_factor
        place["original_max_position_embeddings"] = TRAINED
    try:
        model = AutoModelForCausalLM.from_config(config)
    except (KeyError, TypeError, ValueError):
        return None
    model.load_state_dict(reference.state_dict())
    return model.eval()


def row(model_type: str, found: Served) -> str:
    """A line of the table."""
    marks = " | ".join(found.mark(method) for method in METHODS)
    yes = {True: "yes", False: "no"}
    more = f"{yes[found.sharpens]} | {found.layout} | {yes[found.in_parts]}"
    return f"| {model_type} | = | {marks} | {more} |"


def refusal(model_type: str, error: InputError) -> str:
    """A line of the list of what is refused."""
    return f"- {model_type}: {str(error).rsplit(': ', 1)[-1]}"


def line(model_type: str, folder: Path) -> str:
    """What the document says of an architecture."""
    try:
        return row(model_type, served(model_type, folder))
    except InputError as error:
        return refusal(model_type, error)


def written() -> str:
    """The document as it must be."""
    lines = []
    for model_type in (*ARCHITECTURES, *REFUSED):
        with tempfile.TemporaryDirectory() as folder:
            lines.append(line(model_type, Path(folder)))
    rows = "\n".join(text for text in lines if text.startswith("|"))
    refused = "\n".join(text for text in lines if text.startswith("-"))
    start, rest = DOCUMENT.read_text(encoding="utf-8").split(BEGIN)
    columns = ["architecture", "unmodified", *METHODS, "log n", "far keys", "in parts"]
    head = f"| {' | '.join(columns)} |\n|{' --- |' * len(columns)}"
    made = (
        f"{BEGIN}\n\n{head}\n{rows}\n\nRefused, in these words:\n\n{refused}\n\n{END}"
    )
    return start + made + rest.split(END)[1]


def main() -> int:
    """Compare the document with what is found now, or write it."""
    now = written()
    if "--write" in sys.argv:
        DOCUMENT.write_text(now, encoding="utf-8")
        return 0
    differing = set(now.splitlines()) ^ set(
        DOCUMENT.read_text(encoding="utf-8").splitlines()
    )
    said = (f"transformers {transformers.__version__}", *sorted(differing))
    sys.stdout.write("\n".join(said) + "\n")
    return bool(differing)


if __name__ == "__main__":
    sys.exit(main())
