"""The keys that configurations use for rotation, and what each does."""

from difflib import get_close_matches

IN_BLOCK = {
    "rope_type": "name of the scaling method",
    "type": "older name of rope_type",
    "rope_theta": "base of the frequencies",
    "factor": "how far the trained length is stretched",
    "original_max_position_embeddings": "trained length, from which the scaling starts",
    "attention_factor": "factor on cos and sin; every logit gets its square",
    "attn_factor": "SGLang: multiplies the attention factor; elsewhere unknown",
    "extrapolation_factor": "weight of the ramp; 1 where it is read at all",
    "beta_fast": "turns in the trained length above which a pair is kept",
    "beta_slow": "turns in the trained length below which a pair is divided",
    "mscale": "weight of ln(factor) in the attention factor, numerator",
    "mscale_all_dim": "weight of ln(factor) in the attention factor, denominator",
    "truncate": "whether the ramp's ends are rounded to whole pairs",
    "low_freq_factor": "turns in the trained length below which llama3 divides a pair",
    "high_freq_factor": "turns in the trained length above which llama3 keeps a pair",
    "short_factor": "longrope's divisors up to the trained length",
    "long_factor": "longrope's divisors beyond the trained length",
    "short_mscale": "longrope: factor on cos and sin up to the trained length",
    "long_mscale": "longrope: factor on cos and sin beyond it",
    "partial_rotary_factor": "rotated share of a head",
    "mrope_section": "pairs for time, height and width; frequencies stay as they are",
    "mrope_interleaved": "order of those pairs",
    "alpha": "Hunyuan: base times alpha^(d/(d-2))",
    "llama_4_scaling_beta": "queries grow with the logarithm of the position",
}
AT_TOP = {
    "rope_theta": IN_BLOCK["rope_theta"],
    "partial_rotary_factor": IN_BLOCK["partial_rotary_factor"],
    "original_max_position_embeddings": IN_BLOCK["original_max_position_embeddings"],
    "max_position_embeddings": "longest context that the file claims",
    "head_dim": "features of one head",
    "hidden_size": "divided by num_attention_heads: features of one head, unless head_dim is given",
    "num_attention_heads": "query heads",
    "model_max_length": "longest context, where a runtime reads it",
    "max_seq_len": "longest context, where a runtime reads it",
    "max_sequence_length": "longest context, where a runtime reads it",
    "seq_length": "longest context, where a runtime reads it",
    "n_positions": "longest context in GPT-J and GPT-2 style files",
    "rotary_pct": "rotated share of a head (GPT-NeoX)",
    "rotary_emb_base": "base of the frequencies (GPT-NeoX)",
    "rotary_dim": "rotated features of a head",
    "rotary_emb_fraction": "rotated share of a head",
    "rope_dim": "rotated features of a head",
    "rope_ratio": "ChatGLM: base 10000 times this",
    "qk_rope_head_dim": "rotated features of a head with latent attention",
    "qk_nope_head_dim": "unrotated features of a head with latent attention",
    "rope_local_base_freq": "base of sliding-window layers (Gemma 3)",
    "global_rope_theta": "base of global layers (ModernBERT)",
    "local_rope_theta": "base of local layers (ModernBERT)",
    "rope_interleave": "whether neighbouring features form a pair",
    "rope_scaling": "the scaling block",
    "rope_parameters": "the scaling block of transformers 5",
    "use_mrope": "several position axes",
    "rope_scaling_factor": "gpt-oss's own files: how far the trained length is stretched",
    "initial_context_length": "gpt-oss's own files: trained length",
}


IN_GGUF = {
    "context_length": "longest context that the file claims",
    "embedding_length": "divided by attention.head_count: features of one head",
    "attention.head_count": "query heads",
    "attention.key_length": "features of one head",
    "rope.dimension_count": "rotated features of a head",
    "rope.dimension_sections": "pairs for several position axes",
    "rope.freq_base": "base of the frequencies; 10000 where it is missing",
    "rope.freq_base_swa": "base of sliding-window layers",
    "rope.scaling.type": "none, linear, yarn or longrope; linear where it is missing",
    "rope.scaling.factor": "how far the trained length is stretched",
    "rope.scale_linear": "older name of rope.scaling.factor",
    "rope.scaling.original_context_length": "trained length, from which the ramp starts",
    "rope.scaling.attn_factor": "factor on cos and sin, on top of the ramp's own",
    "rope.scaling.yarn_attn_factor": "computed anew by the runtime, so without effect",
    "rope.scaling.yarn_ext_factor": "weight of the ramp",
    "rope.scaling.yarn_beta_fast": "turns above which a pair is kept",
    "rope.scaling.yarn_beta_slow": "turns below which a pair is divided",
    "rope.scaling.yarn_log_multiplier": "DeepSeek: 0.1 times mscale_all_dim",
    "rope.scaling.finetuned": "whether the model was fine-tuned at the stretched length",
    "rope_freqs.weight": "one divisor per pair, at every length",
    "rope_factors_long.weight": "one divisor per pair beyond the original length",
    "rope_factors_short.weight": "one divisor per pair up to it",
}


def concerns_rope(name: str) -> bool:
    """Whether a top-level key says something about positions."""
    return name in AT_TOP or name in IN_GGUF or "rope" in name.lower() or "rotary" in name.lower()


def meaning(path: str) -> str:
    """What the key at a dotted path does; empty for a key that nobody knows."""
    if path in IN_GGUF:
        return IN_GGUF[path]
    name = path.rsplit(".", 1)[-1]
    in_block = "rope_scaling" in path.split(".")[:-1] or "rope_parameters" in path.split(".")[:-1]
    return (IN_BLOCK if in_block else AT_TOP).get(name, "")


def near(path: str) -> str:
    """The known key whose name is nearest to an unknown one, empty if none is near."""
    name = path.rsplit(".", 1)[-1]
    known = {**IN_BLOCK, **AT_TOP}
    found = get_close_matches(name, [key for key in known if key != name], n=1, cutoff=0.7)
    return found[0] if found else ""
