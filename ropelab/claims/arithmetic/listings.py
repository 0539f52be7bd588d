"""Claims about printed code: what the listings of the notes do when they are run."""

import warnings
from functools import partial

import numpy as np
import torch
from jaxtyping import Float

from ropelab.claims.arithmetic.turning import Pairing, join, swapped
from ropelab.claims.numbers import Array, frequencies, gaussian, largest, tiny
from ropelab.claims.record import Claim, Evidence, Passage, limit, part
from ropelab.models.encoding.registry import Shape, make_encoding
from ropelab.runs.thresholds import FLOAT32_SCORES

SHAPE = (8, 12, 10, 32)
"""Batch, heads, tokens, features: the tensors that a listing is tried on."""


def listing_is_relative(
    *,
    base: float = 10000.0,
    tables: Pairing = "interleaved",
    swap: Pairing = "interleaved",
    shift: int = 5,
    seed: int = 0,
) -> Evidence:
    """Give all positions the same q and k, in float32: equal distances must then score the same."""
    tokens, width = SHAPE[-2:]
    inv_freq = frequencies(width, base).astype(np.float32)
    by_pair = np.arange(tokens, dtype=np.float32)[:, None] * inv_freq
    angles = join(by_pair, by_pair, tables)
    q, k = (
        _listed(np.broadcast_to(x, SHAPE), angles, swap)
        for x in gaussian(seed, 2, *SHAPE[:-2], 1, width).astype(np.float32)
    )
    scores = q @ np.swapaxes(k, -1, -2)
    reach = tokens - shift
    moved = largest(scores[..., :reach, :reach] - scores[..., shift:, shift:])
    return Evidence(
        expected=f"equal distances give equal scores within float32, {FLOAT32_SCORES:g}",
        findings=(
            part(
                f"change of scores when both positions move by {shift}, shape {scores.shape}",
                tiny(moved),
                moved <= FLOAT32_SCORES,
                moved,
            ),
        ),
    )


def listing_with_position_ids(
    *, base: float = 10000.0, swap: Pairing = "half", shift: int = 5, seed: int = 0
) -> Evidence:
    """The listing that looks cos and sin up by position ids: move the ids, keep q and k."""
    batch, _, tokens, width = SHAPE
    by_pair = np.arange(tokens + shift, dtype=np.float32)[:, None]
    by_pair = by_pair * frequencies(width, base).astype(np.float32)
    table = join(by_pair, by_pair, "half")[None, None]
    q, k = gaussian(seed, 2, *SHAPE).astype(np.float32)
    scores = []
    for start in (0, shift):
        ids = np.tile(np.arange(start, start + tokens), (batch, 1))
        angles = table.squeeze(1).squeeze(0)[ids][:, None]
        q_at, k_at = (x * np.cos(angles) + swapped(x, swap) * np.sin(angles) for x in (q, k))
        scores.append(q_at @ np.swapaxes(k_at, -1, -2))
    moved = largest(scores[1] - scores[0])
    return Evidence(
        expected=f"the same scores within float32, {FLOAT32_SCORES:g}",
        findings=(
            part(
                f"change of scores when all position ids grow by {shift}, shape {scores[0].shape}",
                tiny(moved),
                moved <= FLOAT32_SCORES,
                moved,
            ),
        ),
    )


def halves_in_words(*, vector: tuple[float, ...] = (1.0, 2.0, 3.0, 4.0)) -> Evidence:
    """rotate_half of a short vector: which half is where, and with which sign."""
    turned = swapped(np.array([vector]), "half")[0]
    half = len(vector) // 2
    first, second = np.array(vector[:half]), np.array(vector[half:])
    return Evidence(
        expected="the second half negated and in front, the first half unchanged",
        findings=(
            part(
                f"{list(vector)} becomes",
                str(turned.tolist()),
                bool((turned[:half] == -second).all() and (turned[half:] == first).all()),
            ),
            limit(
                "the first half is where it was",
                "yes" if (turned[:half] == first).all() else "no, it is behind now",
                bool((turned[:half] == first).all()),
            ),
        ),
    )


def _listed(
    x: Float[Array, "b h t d"], angles: Float[Array, "t d"], swap: Pairing
) -> Float[Array, "b h t d"]:
    """x cos + swapped(x) sin."""
    return x * np.cos(angles) + swapped(x, swap) * np.sin(angles)


def transposed_scores(*, shape: tuple[int, ...] = SHAPE) -> Evidence:
    """q @ k.T on the four dimensions that a layer with heads has."""
    q, k = torch.zeros(shape), torch.zeros(shape)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns that .T reverses all dimensions
            outcome = f"scores of shape {tuple((q @ k.T).shape)}"
    except RuntimeError:
        outcome = "a RuntimeError: .T reverses all dimensions"
    wanted = f"scores of shape {(*shape[:-2], shape[-2], shape[-2])}"
    return Evidence(
        expected=wanted,
        findings=(part(f"q @ k.T on tensors of shape {shape}", outcome, outcome == wanted),),
    )


def mask_hides(*, filling: float = -1e9) -> Evidence:
    """softmax after masked_fill in the formats of models: is anything left of a masked token?"""
    hidden = torch.tensor([False, True])
    findings = []
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        name = str(dtype).removeprefix("torch.")
        try:
            scores = torch.zeros(2, dtype=dtype).masked_fill(hidden, filling)
            left = float(scores.float().softmax(-1)[1])
            outcome, good = f"{left:g}", left == 0
        except RuntimeError:
            outcome, good = "a RuntimeError: the number does not fit the format", False
        make = part if dtype == torch.float32 else limit
        findings.append(make(f"weight of a masked token in {name}", outcome, good))
    return Evidence(expected="0 in every format", findings=tuple(findings))


def squeezed(*, batch: int = 2, tokens: int = 10, width: int = 4) -> Evidence:
    """Follow the shapes through squeeze, indexing by position ids and unsqueeze."""
    cos = np.zeros((1, 1, tokens, width))
    table = cos.squeeze(1).squeeze(0)
    ids = np.zeros((batch, tokens), dtype=int)
    looked_up = table[ids]
    unsqueezed = np.expand_dims(looked_up, 1)
    return Evidence(
        expected="squeeze takes batch and sequence away, unsqueeze adds the batch",
        findings=(
            part(
                f"{cos.shape} squeezed",
                f"{table.shape}: the {tokens} tokens are still there",
                tokens not in table.shape,
            ),
            part(
                f"{looked_up.shape} unsqueezed",
                f"{unsqueezed.shape}: the batch was there, a dimension for the heads is new",
                looked_up.shape[0] != batch,
            ),
        ),
    )


def negative_indices(*, tokens: int = 5) -> Evidence:
    """bias[pos_j - pos_i] for a query at the end: which row does each distance read?"""
    last = tokens - 1
    distances = np.arange(tokens) - last
    rows = np.arange(tokens)[distances]
    read = {int(distance): int(row) for distance, row in zip(distances, rows, strict=True)}
    wrapped = [distance for distance, row in read.items() if distance < 0 <= row]
    shown = ", ".join(f"{distance} reads row {read[distance]}" for distance in wrapped)
    return Evidence(
        expected="a row of its own for every distance from -L to L",
        findings=(
            part(
                f"rows read for the negative distances of {tokens} tokens from a table of {tokens}",
                shown,
                not wrapped,
                len(wrapped),
            ),
        ),
    )


def embeddings_untouched(*, name: str = "rope", tokens: int = 8, seed: int = 0) -> Evidence:
    """What an encoding changes: the embeddings of the tokens, or queries and keys."""
    shape = Shape(layers=1, width=32, heads=2, head_dim=16, trained_len=tokens)
    encoding = make_encoding(name, shape, seed)
    positions = torch.arange(tokens)
    x = torch.ones(1, tokens, 32)
    q = torch.ones(1, 2, tokens, 16)
    with torch.no_grad():
        embedded = largest((encoding.embed(x, positions) - x).numpy())
        query = largest((encoding.for_layer(0).query(q, positions) - q).numpy())
    return Evidence(
        expected="embeddings change with the position",
        findings=(
            part("change of the embeddings", tiny(embedded), embedded > 0, embedded),
            limit("change of queries", f"{query:.1f}", query > 0, query),
        ),
    )


def vector_on_score(*, width: int = 64) -> Evidence:
    """Add R_2, a vector of the width, to one score and look at the shape."""
    summed = np.float64(0.5) + np.zeros(width)
    return Evidence(
        expected="one number",
        findings=(
            part(
                "one score plus the vector R_2",
                f"{summed.size} numbers",
                summed.size == 1,
                summed.size,
            ),
        ),
    )


CLAIMS = (
    Claim(
        id="note-001-code",
        passages=(Passage("001", "§6.1, §6.2", 394, "freqs_cos = torch.cos(freqs).repeat(1, 2)"),),
        statement="The printed code, tables repeated as two halves with rotate_half, makes scores "
        "depend on the distance only.",
        check=partial(listing_is_relative, base=1e6, tables="half", swap="half"),
    ),
    Claim(
        id="note-004-code",
        passages=(Passage("004", "code", 40, "repeat_interleave(2, dim=-1)"),),
        statement="The printed code, neighbouring tables with neighbouring swaps on shape "
        "(8, 12, 10, 32), makes scores depend on the distance only.",
        check=listing_is_relative,
    ),
    Claim(
        id="note-003-code",
        passages=(
            Passage(
                "003", "RoPE, apply_rotary_pos_emb", 520, "q_embed = (q * cos) + (rotate_half(q)"
            ),
        ),
        statement="The printed code, which looks cos and sin up by position ids, makes scores "
        "depend on the distance only.",
        check=listing_with_position_ids,
    ),
    Claim(
        id="rotate-half-words",
        passages=(
            Passage(
                "003",
                "RoPE, rotate_half",
                544,
                "前一半 x1 不变",
                "the first half, x1, is unchanged",
            ),
            Passage(
                "003",
                "RoPE, rotate_half",
                545,
                "后一半 x2 取反(乘以 -1),并将其放在前面",
                "the second half, x2, is negated (times -1) and put in front",
            ),
        ),
        statement="rotate_half leaves the first half unchanged and puts the second, negated, in "
        "front.",
        check=halves_in_words,
    ),
    Claim(
        id="note-001-attention",
        passages=(Passage("001", "§6.3", 429, "scores = q @ k.T / sqrt(head_dim)"),),
        statement="The printed layer, which splits queries and keys into heads, gets its scores "
        "from q @ k.T.",
        check=transposed_scores,
    ),
    Claim(
        id="note-004-mask",
        passages=(
            Passage(
                "004",
                "code",
                40,
                "mask掉为0的部分,设为无穷大",
                "mask the parts that are 0 by setting them to infinity",
            ),
        ),
        statement="The printed masked_fill(..., -1e9) hides tokens like minus infinity.",
        check=mask_hides,
    ),
    Claim(
        id="squeeze-unsqueeze",
        passages=(
            Passage(
                "003",
                "RoPE, apply_rotary_pos_emb",
                528,
                "去掉 cos 的前两个维度(通常是批量维度和序列长度维度)",
                "drop the first two dimensions of cos (usually batch and sequence length)",
            ),
            Passage(
                "003",
                "RoPE, apply_rotary_pos_emb",
                530,
                "并增加一个维度(批量维度)",
                "and add a dimension (the batch)",
            ),
        ),
        statement="The printed code squeezes away batch and sequence length and unsqueezes the "
        "batch.",
        check=squeezed,
    ),
    Claim(
        id="t5-listing",
        passages=(Passage("001", "§3.2", 165, "bias = relative_position_bias[relative_distance]"),),
        statement="The printed code looks up the bias of every relative distance, from minus to "
        "plus the length of the sequence.",
        check=negative_indices,
    ),
    Claim(
        id="rope-in-embeddings",
        passages=(
            Passage(
                "000",
                "§1",
                3,
                "将位置信息融入Token Embedding的编码方法",
                "a method that blends position information into the token embedding",
            ),
        ),
        statement="RoPE puts positions into the token embeddings.",
        check=embeddings_untouched,
    ),
    Claim(
        id="vector-on-score",
        passages=(
            Passage(
                "003",
                "relative encodings §8",
                364,
                "查找 $ R_2 $,然后把这个向量加到注意力得分中",
                "look up R_2 and then add this vector to the attention score",
            ),
        ),
        statement="The vector R_2 is added to the attention score.",
        check=vector_on_score,
    ),
)
