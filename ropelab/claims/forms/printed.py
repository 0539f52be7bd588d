"""Checks of claims about printed code and formulas, and about what a note says of code.

A check measures something and adds the result to `findings`: as a part, without which the
claim does not hold, or as a limit, which puts a condition on it (see `Findings`).
"""

import warnings
from collections.abc import Sequence
from typing import Literal

import numpy as np
from jaxtyping import Float

from ropelab.claims import arrays
from ropelab.claims.forms.rotation import BASE, HEAD, rotate_elementwise
from ropelab.claims.record import Findings, Role, claim
from ropelab.models.encoding.registry import Shape, make_encoding
from ropelab.runs.thresholds import FLOAT32_SCORES

# The tensors with which a listing is tried: batch, heads, tokens, features.
SHAPE = (8, 12, 10, 32)
# The number of tokens by which all positions are moved.
SHIFT = 5


def _tabulate_angles(
    tokens: int, base: float, pairing: arrays.Pairing
) -> Float[arrays.Array, "tokens width"]:
    """Return the angles of all positions and features, as a printed listing tabulates
    them. `pairing` says which two features get the angle of a pair.
    """
    *_, width = SHAPE
    inv_freq = arrays.frequencies(width, base).astype(np.float32)
    positions = np.arange(tokens, dtype=np.float32)
    angles = positions[:, None] * inv_freq  # [tokens, pairs]
    # Each angle twice, for the two features of its pair.
    return arrays.join(angles, angles, pairing)


@claim("note-001-code", "note-004-code", bound=FLOAT32_SCORES)
def check_listing_is_relative(
    findings: Findings,
    base: float = 10000.0,
    tables: arrays.Pairing = "interleaved",
    swap: arrays.Pairing = "interleaved",
    seed: int = 0,
) -> None:
    """Give all positions the same q and k: equal distances must then score the same.

    `tables` is the pairing of the listing's tables, and `swap` the pairing of its
    swapped features.
    """
    batch, heads, tokens, width = SHAPE
    angles = _tabulate_angles(tokens, base, tables)
    q, k = arrays.gaussian(seed, 2, batch, heads, 1, width).astype(np.float32)
    rotated_q = rotate_elementwise(np.broadcast_to(q, SHAPE), angles, swap)
    rotated_k = rotate_elementwise(np.broadcast_to(k, SHAPE), angles, swap)
    scores = rotated_q @ np.swapaxes(rotated_k, -1, -2)
    # The scores of the first tokens, and the scores at the same distances SHIFT tokens
    # later.
    first_scores = scores[..., :-SHIFT, :-SHIFT]
    moved_scores = scores[..., SHIFT:, SHIFT:]
    change = arrays.max_abs(first_scores - moved_scores)

    what = f"change of scores when both positions move by {SHIFT}, shape {scores.shape}"
    findings.add_zero(what, change, FLOAT32_SCORES)


@claim("note-003-code", bound=FLOAT32_SCORES)
def check_listing_with_position_ids(
    findings: Findings, swap: arrays.Pairing = "half", seed: int = 0
) -> None:
    """Move the position ids by which the listing looks up cos and sin."""
    batch, _, tokens, _ = SHAPE
    # As in the listing, the table has dimensions for the batch and the heads, which are
    # taken away before it is indexed.
    table = _tabulate_angles(tokens + SHIFT, BASE, "half")[None, None]
    q, k = arrays.gaussian(seed, 2, *SHAPE).astype(np.float32)

    def compute_scores(start: int) -> arrays.Array:
        position_ids = np.tile(np.arange(start, start + tokens), (batch, 1))
        # [batch, 1, tokens, features]
        angles = table.squeeze(1).squeeze(0)[position_ids][:, None]
        rotated_q = rotate_elementwise(q, angles, swap)
        rotated_k = rotate_elementwise(k, angles, swap)
        return rotated_q @ np.swapaxes(rotated_k, -1, -2)

    scores = compute_scores(0)
    change = arrays.max_abs(compute_scores(SHIFT) - scores)
    what = (
        f"change of scores when all position ids grow by {SHIFT}, shape {scores.shape}"
    )
    findings.add_zero(what, change, FLOAT32_SCORES)


@claim("rotate-half-words")
def check_halves_in_words(
    findings: Findings, vector: Sequence[float] = (1.0, 2.0, 3.0, 4.0)
) -> None:
    """Follow a vector through rotate_half, as the words of a note describe it."""
    result = arrays.swap_pairs(np.array(vector), "half").tolist()
    half = len(vector) // 2
    first_half = list(vector[:half])
    negated_second_half = [-x for x in vector[half:]]
    is_right = result == negated_second_half + first_half
    findings.add_part(f"{list(vector)} becomes", str(result), is_right)
    stays = result[:half] == first_half
    place = "in its place" if stays else "behind the other, not in its place"
    findings.add_limit("the first half, its numbers unchanged, stands", place, stays)


@claim("note-001-attention")
def check_transposed_scores(findings: Findings, shape: Sequence[int] = SHAPE) -> None:
    """Run a printed product of queries and keys on tensors of four dimensions."""
    import torch

    q = torch.zeros(*shape)
    k = torch.zeros(*shape)
    try:
        with warnings.catch_warnings():
            # torch warns that .T reverses all dimensions.
            warnings.simplefilter("ignore")
            scores = q @ k.T
            outcome = f"scores of shape {tuple(scores.shape)}"
    except RuntimeError:
        outcome = "a RuntimeError: .T reverses all dimensions"

    *batch_and_heads, tokens, _ = shape
    scores_shape = (*batch_and_heads, tokens, tokens)
    findings.expected = f"scores of shape {scores_shape}"
    what = f"q @ k.T on tensors of shape {tuple(shape)}"
    findings.add_part(what, outcome, outcome == findings.expected)


@claim("note-004-mask")
def check_mask(findings: Findings, filling: float = -1e9) -> None:
    """Mask one of two equal scores by a number, in three formats."""
    import torch

    # -1e9 fits bfloat16, but the largest float16 is 65504.
    is_masked = torch.tensor([False, True])
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        try:
            scores = torch.zeros(2, dtype=dtype).masked_fill(is_masked, filling)
            _, weight_of_masked = scores.float().softmax(dim=-1).tolist()
            outcome = f"{weight_of_masked:g}"
            is_hidden = weight_of_masked == 0
        except RuntimeError:
            outcome = "a RuntimeError: the number does not fit the format"
            is_hidden = False
        what = f"weight of a masked token in {str(dtype).removeprefix('torch.')}"
        role: Role = "part" if dtype == torch.float32 else "limit"
        findings.add(role, what, outcome, is_hidden)


@claim("squeeze-unsqueeze")
def check_squeeze(findings: Findings, batch: int = 2, tokens: int = 10) -> None:
    """Follow the shapes of a table of cosines through a printed listing."""
    # Only shapes matter, so zeros are enough.
    cos = np.zeros((1, 1, tokens, 4))
    table = cos.squeeze(1).squeeze(0)
    position_ids = np.zeros((batch, tokens), dtype=int)
    looked_up = table[position_ids]
    unsqueezed = np.expand_dims(looked_up, 1)
    measured = f"{table.shape}: the {tokens} tokens are still there"
    findings.add_part(f"{cos.shape} squeezed", measured, tokens not in table.shape)
    measured = (
        f"{unsqueezed.shape}: the batch was there, a dimension for the heads is new"
    )
    findings.add_part(
        f"{looked_up.shape} unsqueezed", measured, looked_up.shape[0] != batch
    )


@claim("t5-listing")
def check_negative_indices(
    findings: Findings, tokens: int = 5, rows: Sequence[int] = (11, 5)
) -> None:
    """Read the rows of a table of relative positions as a printed listing does, by
    distances that may be negative.

    The listing does not print how many rows the table has. `rows` has the sizes of two
    tables: with a row for each number from minus to plus the length, and with a row for
    each token.
    """
    distances = range(1 - tokens, tokens)
    roles: tuple[Role, ...] = ("part", "limit")
    for role, size in zip(roles, rows, strict=True):
        table = np.arange(size)  # each row holds its own number
        # Python counts negative indices from the end. A large table has rows there that no
        # other distance reads. In a small table two distances read the same row, and no
        # error shows it.
        distances_of_row: dict[int, list[int]] = {}
        for distance in distances:
            distances_of_row.setdefault(int(table[distance]), []).append(distance)
        texts = []
        for row, readers in distances_of_row.items():
            if len(readers) > 1:
                listed = " and ".join(map(str, readers))
                texts.append(f"{listed} both read row {row}")

        what = (
            f"the {len(distances)} distances of {tokens} tokens, read from a table of"
            f" {size} rows"
        )
        measured = ", ".join(texts) or "each reads a row of its own"
        findings.add(role, what, measured, not texts, len(texts))


@claim("rope-in-embeddings")
def check_embeddings(findings: Findings, name: str = "rope") -> None:
    """Measure what an encoding changes: embeddings, and queries."""
    import torch

    shape = Shape(layers=1, width=32, heads=2, head_dim=16, trained_len=8)
    encoding = make_encoding(name, shape, seed=0)
    positions = torch.arange(8)
    embeddings = torch.ones(1, 8, 32)  # [1, tokens, width]
    queries = torch.ones(1, 2, 8, 16)  # [1, heads, tokens, head_dim]
    with torch.no_grad():
        embedded = encoding.embed(embeddings, positions)
        encoded_queries = encoding.for_layer(0).query(queries, positions)
    change = arrays.max_abs((embedded - embeddings).numpy())
    what = "token embeddings, from position to position"
    findings.add_part(what, _write_change(change), change > 0, change)
    change = arrays.max_abs((encoded_queries - queries).numpy())
    what = "queries, from position to position"
    findings.add_limit(what, _write_change(change), change > 0, change)


def _write_change(change: float) -> str:
    return "unchanged" if change == 0 else "changed"


@claim("vector-on-score", "bias-of-vectors")
def check_vector_on_score(
    findings: Findings, width: int = 64, what: str = "vector R_2"
) -> None:
    """Add a vector to one score, as a printed formula does."""
    # NumPy adds a vector to a number without an error, so the size of the result tells.
    score = np.float64(0.5)
    size = (score + np.zeros(width)).size
    findings.add_part(f"one score plus the {what}", f"{size} numbers", size == 1, size)


@claim("index-range")
def check_last_index(findings: Findings, said: int = 16) -> None:
    """Find the last index of the pairs in a printed listing."""
    last_index = int(np.arange(0, HEAD // 2)[-1])
    what = f"last i of the printed listing, d = {HEAD}"
    findings.add_part(what, f"{last_index}", last_index == said, last_index)


@claim("sinusoid-index")
def check_index_in_formula(findings: Findings, index: Literal["k", "i"] = "k") -> None:
    """Count the different codes of 5 positions by a formula with the printed index k, or
    with the position i in its place.
    """
    if index == "i":
        numbers = np.arange(5, dtype=float)
    else:
        # The printed index is not the position. A fixed number, here 1, stands for it, so
        # that all positions have the same code.
        numbers = np.ones(5)
    inv_freq = BASE ** (-np.arange(0, 4, 2) / 4)
    angles = np.outer(numbers, inv_freq)
    # Codes that differ by rounding only count as one.
    different_codes = len(np.unique(np.sin(angles).round(12), axis=0))
    what = f"codes p_i of 5 positions with sin({index} / 10000^(2t/d))"
    findings.add_part(
        what, f"{different_codes} different", different_codes == 5, different_codes
    )
