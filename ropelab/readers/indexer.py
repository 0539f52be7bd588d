"""The rotation of the indexer of sparse attention, a second one in a layer."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ropelab.readers.spec import RopeSpec, whole
from ropelab.runs.files import table_beside

INDEXERS = table_beside(__file__)["indexers"]
INDEX_HEAD_DIM = 128  # of all of these classes


def read_indexer(
    text: Mapping[str, Any], layers: Mapping[str, RopeSpec]
) -> RopeSpec | None:
    """Return the rotation of the indexer of sparse attention, if a model has one."""
    facts = INDEXERS.get(str(text.get("model_type")))
    if facts is None:
        return None

    spec = layers[facts.get("layer") or next(iter(layers))]
    head_dim = whole(text.get("index_head_dim", INDEX_HEAD_DIM), "index_head_dim")
    pairing = facts["pairing"]
    # GLM's configurations say what its class has in its code.
    if text.get("indexer_rope_interleave") is False:
        pairing = "half"
    place = head_dim - spec.rotary_dim if facts["place"] == "last" else 0
    # Factors on its scores choose the same tokens, so that only cos and sin count.
    return replace(
        spec, head_dim=head_dim, pairing=pairing, place=place, softmax_factor=1.0
    ).check()
