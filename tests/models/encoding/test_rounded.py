"""Rounded rotations in a model, against scores by NumPy, and nothing rounded against
plain RoPE.
"""

import math

import numpy as np
import pytest
import torch

from ropelab.math.frequencies import Geometry
from ropelab.math.methods import parse_scaling
from ropelab.math.numerics.casts import PRESETS
from ropelab.math.numerics.chain import Chain, Spectrum
from ropelab.math.numerics.formats import FORMATS, round_to
from ropelab.math.numerics.keys import KeyFormat, Rounding, parse_keys, parse_rounding
from ropelab.math.numerics.scores import compute_scores, draw
from ropelab.math.rotary import Pairing
from ropelab.models.encoding.rope import Rope
from ropelab.models.encoding.rounded import NATIVE, RoundedRope, round_tensor
from ropelab.runs.errors import InputError

GEOMETRY = Geometry(64, 1e4, 2048)
POSITIONS = torch.tensor([1, 500, 1857, 5000])


def rope(method: str = "unscaled", pairing: Pairing = "half") -> Rope:
    return Rope(parse_scaling(method, 4.0).plan(GEOMETRY, 8192), pairing)


def heads(seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, 3, len(POSITIONS), 64, generator=generator)


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
@pytest.mark.parametrize("method", ["unscaled", "yarn"])
def test_a_plan_that_rounds_nothing_is_plain_rope_bit_for_bit(method, pairing):
    plain = rope(method, pairing)
    ours = RoundedRope(plain, Rounding("exact"), 1e4)
    assert torch.equal(ours.query(heads(), POSITIONS), plain.query(heads(), POSITIONS))
    assert torch.equal(ours.key(heads(1), POSITIONS), plain.key(heads(1), POSITIONS))
    assert ours.fused


@pytest.mark.parametrize(
    "name", [*PRESETS, "position:bfloat16", "angle:float16", "score:bfloat16"]
)
def test_scores_in_a_model_are_those_that_precision_computes(name):
    rounding, drawn = parse_rounding(name), draw(3, 32, "random", 0)
    encoding = RoundedRope(rope(), rounding, 1e4)
    spectrum = Spectrum(GEOMETRY.inv_freq, 1e4, 64)
    q_at, k_at = POSITIONS[1:], POSITIONS[:-1]
    expected = compute_scores(
        Chain(rounding.cast, spectrum),
        drawn,
        *(x.double().numpy() for x in (q_at, k_at)),
    )
    vectors = []
    for features, at in ((drawn.query, q_at), (drawn.key, k_at)):
        x = torch.from_numpy(np.concatenate(features, axis=1).swapaxes(1, 2)).float()
        x = x[None].expand(1, 3, len(at), 64)
        vectors.append(
            (encoding.query if features is drawn.query else encoding.key)(x, at)
        )
    query, key = vectors
    found = encoding.scores(query, key, q_at, k_at)[0].diagonal(dim1=1, dim2=2)
    # The model computes in float32: where a sum ends halfway it may round to the other
    # neighbour.
    tolerance = 2e-2 if rounding.cast.score.precision < 12 else 1e-5
    np.testing.assert_allclose(found, expected, atol=tolerance)
    assert np.abs(found.numpy() - expected).mean() < tolerance / 10


def test_the_offset_is_added_to_every_position():
    moved = parse_rounding("position:bfloat16")._replace(first=3000)
    there = RoundedRope(rope(), parse_rounding("position:bfloat16"), 1e4)
    here = RoundedRope(rope(), moved, 1e4)
    assert torch.equal(
        here.query(heads(), POSITIONS), there.query(heads(), POSITIONS + 3000)
    )
    assert moved.label == "position=bfloat16 from 3000"
    assert moved.key != parse_rounding("position:bfloat16").key


@pytest.mark.parametrize("before", [False, True])
def test_keys_are_stored_after_the_rotation_or_before_it(before):
    keys = KeyFormat("q4_0", "block", before)
    encoding, plain = RoundedRope(rope(), Rounding("q4_0", keys=keys), 1e4), rope()

    def stored(x: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(keys.store(x.double().numpy())).float()

    x = heads()
    expected = (
        plain.key(stored(x), POSITIONS) if before else stored(plain.key(x, POSITIONS))
    )
    assert torch.equal(encoding.key(x, POSITIONS), expected)
    assert torch.equal(encoding.query(x, POSITIONS), plain.query(x, POSITIONS))
    assert not torch.equal(expected, plain.key(x, POSITIONS))


def test_features_that_do_not_rotate_are_rounded_where_they_enter_the_score():
    narrow = Geometry(32, 1e4, 2048)
    encoding = RoundedRope(
        Rope(parse_scaling("unscaled", 1.0).plan(narrow, 2048)),
        parse_rounding("score:bfloat16"),
        1e4,
    )
    out = encoding.query(heads(), POSITIONS)
    assert torch.equal(out[..., 32:], heads()[..., 32:].bfloat16().float())
    assert torch.equal(out, out.bfloat16().float())


@pytest.mark.parametrize("name", [*NATIVE, "tf32", "float8_e4m3fn"])
def test_tensors_are_rounded_as_arrays_are(name):
    x = torch.randn(4096, generator=torch.Generator().manual_seed(0)) * 100
    expected = round_to(x.double().numpy(), FORMATS[name])
    np.testing.assert_array_equal(round_tensor(x, FORMATS[name]).double(), expected)


def test_an_angle_that_overflows_is_refused():
    encoding = RoundedRope(rope(), parse_rounding("angle:float8_e4m3fn"), 1e4)
    with pytest.raises(
        InputError, match="angle=float8_e4m3fn: an angle overflows before"
    ):
        encoding.query(heads(), POSITIONS)
    near = torch.arange(4)
    assert encoding.query(heads(), near).isfinite().all()


def test_a_rounded_position_makes_a_score_depend_on_the_place():
    q, k, at = heads(), heads(1), torch.tensor([1000, 1001, 1002, 1003])
    for name, spread in (("position:bfloat16", 0.1), ("inv_freq:bfloat16", None)):
        encoding = RoundedRope(rope(), parse_rounding(name), 1e4)
        query = encoding.query(q[:, :, :1].expand(-1, -1, 4, -1), at)
        key = encoding.key(k[:, :, :1].expand(-1, -1, 4, -1), at - 7)
        deviation = float((query * key).sum(-1).std(-1).mean()) / math.sqrt(64)
        assert deviation > spread if spread else deviation < 1e-4


def test_a_format_of_keys_names_itself_in_the_key_of_its_cells():
    rounding = Rounding("int4(before)", keys=parse_keys("int4(before)"))
    assert rounding.key == {"cast": "float64", "keys": "int4(before)"}
    assert rounding.rounds
