"""The record of the facts that are known about one model type.

The values come from the tables of this folder, by the names of the fields: classes.json
(what the class in transformers reads, and its defaults), families.toml (facts that the
class does not show when it is asked), model_types.toml (older releases) and served.toml
(what the model file of a server does otherwise). See `find_family`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class Family:
    """The facts of one model type.

    The default of a field is what holds for most model types. "The class" is the
    configuration class in transformers, "the file" is the configuration, and "a block"
    is its dict rope_scaling or rope_parameters.
    """

    name: str

    # -- Defaults: what the class takes where the file is silent. --

    # True if the class was asked for its defaults, so that the defaults below are its own.
    has_known_defaults: bool = False
    hidden_size: int | None = None
    num_attention_heads: int | None = None
    max_position_embeddings: int | None = None
    original_max_position_embeddings: int | None = None
    # Features of a head. None: hidden_size / num_attention_heads.
    head_dim: int | None = None
    # Features of a head in layers with full attention, where they differ from head_dim.
    global_head_dim: int | None = None
    base: float = 10000.0
    # The rotated share of a head, from 0 to 1. None: the whole head rotates.
    share: float | None = None
    # The rotated share where the block has no scaling and gives no share.
    unscaled_share: float | None = None
    # The block itself.
    rope_block: Mapping[str, Any] = field(default_factory=dict)
    # The block of each layer type, for a class that has more than one.
    layer_blocks: Mapping[str, Any] = field(default_factory=dict)
    # The block of each layer type where the file has an empty one for it.
    layer_blocks_from_empty: Mapping[str, Any] = field(default_factory=dict)
    # The number of rotated features of a head where the file lacks `width_key`. 0: all
    # features.
    usual_width: int = 0
    # True if the class cuts the rotated features out by the width itself. Other classes
    # divide the width by that of the head, and multiply the share again.
    cuts_by_width: bool = False

    # -- Keys: by which name the class reads a value. --

    # Another name of a key, by its usual name: {"hidden_size": "d_model"}.
    aliases: Mapping[str, str] = field(default_factory=dict)
    # The base. Of several keys, here and below, the first that the file has counts.
    base_keys: tuple[str, ...] = ("rope_theta",)
    # True if the class of the whole fills in a block, whose base comes before the keys.
    has_block_of_whole: bool = False
    # Keys that stretch the base if they are true, each with the factor s of the stretch: the
    # base is multiplied by s^(d / (d - 2)) for heads of d features, as NTK does.
    stretched_by: Mapping[str, float] = field(default_factory=dict)
    # The base of each layer type, by the type.
    layer_base_keys: Mapping[str, str] = field(default_factory=dict)
    # The base of layers with a sliding window. Empty: no key of its own.
    local_base_key: str = ""
    # The key of the number by which the base is multiplied. Empty: the class reads no
    # key for it.
    ratio_key: str = ""
    # The features of a head.
    head_keys: tuple[str, ...] = ("head_dim",)
    # The features of a head in layers with a sliding window. Empty: no key of its own.
    local_head_key: str = ""
    # The rotated share of a head.
    share_keys: tuple[str, ...] = ("partial_rotary_factor",)
    # The key of the number of rotated features of a head. Empty: the class reads no key
    # for it.
    width_key: str = ""
    # True if the number of `width_key` counts even where the file has a share.
    width_before_share: bool = False
    # The pairing: adjacent features form a pair if its value is true.
    pairing_key: str = ""
    # The values of `pairing_key` that count as true. Empty: every true value does.
    interleaved_by: tuple[str, ...] = ()
    # The pairing again: features half of the width apart form a pair if it is true.
    half_key: str = ""
    # The factors on attention, one key for each of the two tables of longrope.
    attention_keys: tuple[str, ...] = ()
    # Keys that set other keys, if they are true: {"use_x": {"rope_theta": 1e6}}.
    switches: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    # The types that the class takes, by key: {"head_dim": "int or null"}.
    key_types: Mapping[str, str] = field(default_factory=dict)
    # True if the class of the whole model reads the keys of its language part, too.
    reads_text_keys: bool = False

    # -- Rotation: what the class computes, whatever the file says. --

    # Values that are constants in the code of the class.
    constants: Mapping[str, Any] = field(default_factory=dict)
    # "half": features half of the width apart form a pair; "interleaved": adjacent
    # features do.
    pairing: Literal["half", "interleaved"] = "half"
    # The end of a head that rotates, where a part of the head does.
    rotated_end: Literal["first", "last"] = "first"
    # True if vectors rotate by the negative angle.
    rotates_backwards: bool = False
    # True for latent attention, as DeepSeek's: rotated features are a separate part of
    # a head.
    latent: bool = False
    # Heads have this many times hidden_size / num_attention_heads features.
    head_scale: int = 1
    # True if a rotated share is read without a scaling, too.
    reads_share_unscaled: bool = False
    # The base of layers with a sliding window. None: the same base as in all other
    # layers.
    local_base: float | None = None
    # True if layers with a sliding window are scaled like all other layers.
    local_scaled: bool = False

    # -- Layer types. --

    # The layer types of a class that has one block for all layer types.
    layer_types: tuple[str, ...] = ()
    # True if the file says which of these layer types the model has.
    declares_layer_types: bool = False
    # True if the rotary class passes over layer types that have no block. Other classes
    # stop at such a layer type.
    has_unrotated_types: bool = False
    # The layer types to which the one block of a file for transformers 4 belongs.
    scaled_layer_types: tuple[str, ...] = ()

    # -- Refusals: files at which the class stops. --

    # Each comment says what such a file has. If the comment begins with True or False, the
    # class stops only if the field has this value.

    # Scaling types.
    refuses: tuple[str, ...] = ()
    # Scaling types in a file without a head_dim.
    refuses_without_head_dim: tuple[str, ...] = ()
    # True: YaRN, dynamic or longrope, and a head_dim of null.
    stops_at_null_head_dim: bool = False
    # False: a rope_scaling of null, where each layer type has a block.
    replaces_null_block: bool = False
    # False: a base of null, beside the blocks of the layer types.
    replaces_null_base: bool = False
    # True: one block for all layer types.
    refuses_flat: bool = False
    # True: a rope_scaling, null included, which replaces the dicts of the layer types. The
    # class fills in no base there.
    keeps_rope_scaling: bool = False
    # True: no dict for a layer type that the model has.
    needs_each_layer: bool = False
    # True: no rotated share, which its attention takes from the block.
    attends_by_share: bool = False
    # True: a rotated share of null, by which the class multiplies on loading.
    multiplies_share: bool = False
    # True: no rope_scaling.
    needs_block: bool = False
    # A block without these keys, in transformers 4.
    block_keys: tuple[str, ...] = ()
    # A block of one of these scaling types without all of its keys.
    type_keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # A null under one of these keys of a block, which the class turns into a float.
    float_keys: tuple[str, ...] = ()
    # True: a scaling in rope_scaling that starts from an original length, without it. The class
    # fills the length in only in the dicts of rope_parameters.
    older_needs_original: bool = False
    # A block without these keys, in transformers 5: its first forward pass stops.
    forward_keys: tuple[str, ...] = ()
    # True: a hidden_size that is not a multiple of num_attention_heads.
    needs_divisible_size: bool = False
    # True: a head_dim other than hidden_size / num_attention_heads. Its tables are as wide
    # as head_dim, and its attention divides the sizes whatever that key says.
    divides_for_attention: bool = False
    # A head_dim other than the sum of these keys, which the heads of its attention have,
    # by key with the default of the class: {"qk_rope_head_dim": 64}.
    attention_parts: Mapping[str, int] = field(default_factory=dict)

    # -- Servers: what the model file of vLLM or SGLang does otherwise. --

    # The only base that the model file uses. None: it uses the base of the
    # configuration.
    fixed_base: float | None = None
    # True if the base is rounded down to a whole number.
    whole_base: bool = False
    # True if layers with a base of 0 do not rotate (granite.py:210 in vLLM, :193 in
    # SGLang).
    unrotated_at_zero: bool = False
    # True if layers with a base of null do not rotate (granite.py:193 in SGLang).
    unrotated_at_null: bool = False
    # True if the model file makes the block itself, and reads none of the file.
    makes_own_block: bool = False
    # True if the class has no block, and drops the base of a file that has one.
    has_no_block: bool = False
    # True if the keys of a scaling are beside the base, outside a block (Grok).
    has_scaling_beside_base: bool = False
    # True if the model file passes no scaling on.
    drops_scaling: bool = False
    # True if the model file passes no rotated share on.
    drops_share: bool = False
    # The keys of a block that vLLM's model file passes on, always to YaRN. Empty: all
    # keys are passed on, to the scaling that the block names.
    passed_yarn_keys: tuple[str, ...] = ()
    # True if YaRN's attention_factor is read.
    counts_attention_factor: bool = False
    # True if a head has hidden_size / num_attention_heads features, whatever head_dim is.
    ignores_head_dim: bool = False
    # The keys from which SGLang's model file takes the rotated share or width. Those in
    # a block are not read unless their path is given.
    sglang_share_keys: tuple[str, ...] = ()
    # True if layers with a sliding window take base and share of full attention where
    # their block has none.
    sliding_as_full: bool = False
    # True if the server has no configuration class but that which comes with the weights.
    needs_remote: bool = False
    # Keys without which the model file stops.
    needs_keys: tuple[str, ...] = ()
    # True if the server's model file, or its configuration class, stops without a head_dim.
    needs_head_dim: bool = False
    # True if the model file stops at a head_dim of null that the configuration class
    # leaves as it is.
    keeps_null_head_dim: bool = False
    # True if the configuration class stops without lists of bases and shares.
    needs_lists: bool = False

    # -- llama.cpp's converter. --

    # The fields that it writes for every file of this type, with their values.
    converter_writes: Mapping[str, Any] = field(default_factory=dict)
    # The scaling types for which its code was not read; ("any",): none was read.
    converter_unread_types: tuple[str, ...] = ()

    # -- Limits of the readers here. --

    # The only runtimes whose code for this model type was read. Empty: the code of all
    # runtimes was read.
    read_by: tuple[str, ...] = ()
    # The part of the model that no reader here computes, in words: "ALiBi". Empty:
    # every part is computed.
    unread: str = ""
    # With this key, `unread` holds only for files that give the key another value than
    # `unread_usual`. Empty: it holds for every file.
    unread_key: str = ""
    unread_usual: Any = 1
    # True if `unread_usual` is replaced by hidden_size / num_attention_heads.
    unread_usual_from_heads: bool = False
    # If there are keys here, `unread` holds only for files in which one of these keys
    # has a value other than null.
    unread_keys: tuple[str, ...] = ()
