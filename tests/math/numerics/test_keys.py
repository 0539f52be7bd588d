"""Formats of stored keys: against gguf's quantisers, float8 of ml_dtypes, and
definitions.
"""

import gguf
import ml_dtypes
import numpy as np
import pytest

from ropelab.math.frequencies import inverse_frequencies
from ropelab.math.numerics.chain import Spectrum
from ropelab.math.numerics.keys import (
    SCALE_SETS,
    key_errors,
    parse_keys,
    parse_rounding,
)
from ropelab.runs.errors import InputError

RANDOM = np.random.default_rng(0)
KEYS = RANDOM.standard_normal((2, 3, 70, 64)) * np.exp(RANDOM.standard_normal(64))
FORMATS = [
    f"{number}({shared})" for number in SCALE_SETS for shared in SCALE_SETS[number]
]


@pytest.mark.parametrize("name", ["q8_0", "q4_0"])
def test_blocks_of_llama_cpp_are_those_of_gguf(name):
    kind = gguf.GGMLQuantizationType[name.upper()]
    rows = np.concatenate(
        [KEYS.reshape(-1, 64), np.zeros((1, 64)), np.full((1, 64), -3.5)]
    )
    rows = rows.astype(np.float32)
    expected = gguf.quants.dequantize(gguf.quants.quantize(rows, kind), kind)
    ours = parse_keys(name).store(rows.astype(np.float64)[None])[0]
    np.testing.assert_array_equal(ours, expected)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("fp8_e4m3", ml_dtypes.float8_e4m3fn), ("fp8_e5m2", ml_dtypes.float8_e5m2)],
)
def test_float8_is_that_of_another_library_with_one_scale_per_tensor(name, dtype):
    largest = float(ml_dtypes.finfo(dtype).max)
    expected = np.empty_like(KEYS)
    for row, keys in enumerate(KEYS):  # documents have nothing to do with each other
        scale = np.abs(keys).max() / largest
        expected[row] = (keys / scale).astype(dtype).astype(np.float64) * scale
    np.testing.assert_array_equal(parse_keys(name).store(KEYS), expected)


def naive(keys, bits):
    """One set of numbers with one range."""
    levels = np.linspace(keys.min(), keys.max(), 2**bits)
    return levels[np.abs(keys[..., None] - levels).argmin(-1)]


def test_integers_are_the_nearest_of_equal_steps_by_token_channel_and_group():
    keys = KEYS[0]
    for head, token, feature in ((0, 3, 5), (2, 69, 63), (1, 40, 0)):
        own = naive(keys[head, token], 4)[feature]
        assert parse_keys("int4").store(keys)[head, token, feature] == pytest.approx(
            own
        )
        own = naive(keys[head, :, feature], 8)[token]
        assert parse_keys("int8(channel)").store(keys)[
            head, token, feature
        ] == pytest.approx(own)
        own = naive(keys[head, :, feature], 3)[token]
        assert parse_keys("int3(channel)").store(keys)[
            head, token, feature
        ] == pytest.approx(own)
        first = token // 32 * 32
        own = naive(keys[head, first : first + 32, feature], 4)[token - first]
        assert parse_keys("int4(group)").store(keys)[
            head, token, feature
        ] == pytest.approx(own)


@pytest.mark.parametrize("name", FORMATS)
def test_more_bits_and_smaller_sets_round_less_and_zeros_stay(name):
    fmt = parse_keys(name)
    error = np.abs(fmt.store(KEYS) - KEYS).mean()
    # Seven steps in place of fifteen.
    most = 0.2 * 15 / 7 if name.startswith("int3") else 0.2
    assert 0 < error < most * np.abs(KEYS).mean()
    assert not fmt.store(np.zeros((1, 4, 64))).any()
    assert parse_keys(fmt.label) == fmt


def test_a_hadamard_matrix_spreads_one_large_feature_over_all():
    keys = RANDOM.standard_normal((1, 64, 64))
    keys[..., 7] += 50
    plain, turned = (
        np.abs(parse_keys(name).store(keys) - keys)[..., :7].mean()
        for name in ("int4", "int4(hadamard)")
    )
    assert turned < plain / 3
    # Without rounding to speak of, it is undone.
    np.testing.assert_allclose(parse_keys("int8(hadamard)").store(keys), keys, atol=0.2)


def test_heads_that_are_no_whole_blocks_and_unknown_words_are_refused():
    with pytest.raises(
        InputError, match="q4_0 has blocks of 32 features, heads have 80"
    ):
        parse_keys("q4_0").store(np.zeros((1, 1, 80)))
    with pytest.raises(InputError, match="did you mean 'q4_0'"):
        parse_keys("q4")
    with pytest.raises(InputError, match="word in int4"):
        parse_keys("int4(tensor)")
    for text in ("int4(channel", "int4(channel))", "int4(channel) before"):
        with pytest.raises(InputError, match="its brackets do not match"):
            parse_keys(text)
    with pytest.raises(InputError, match="one kind of scale"):
        parse_keys("int4(token, channel)")


def test_moved_keys_are_read_rotated_and_stored_again():
    fmt = parse_keys("q4_0(hadamard, moved=3x5)")
    assert (fmt.moves, fmt.step, parse_keys(fmt.label)) == (3, 5, fmt)
    for text in ("q4_0(before, moved=1x1)", "q4_0(moved=1x1, moved=2x1)"):
        with pytest.raises(InputError, match="only after RoPE"):
            parse_keys(text)
    for text in ("q4_0(moved=0x1)", "q4_0(moved=8)"):
        with pytest.raises(InputError, match="word in q4_0"):
            parse_keys(text)
    spectrum = Spectrum(inverse_frequencies(64, 1e5), 1e5, 64)
    plain, once, by_one = (
        key_errors(parse_keys(f"q8_0{how}"), spectrum, 2048, 0)
        for how in ("", "(moved=1x512)", "(moved=64x1)")
    )
    # Roundings add up as a random walk where each move changes the stored numbers.
    np.testing.assert_allclose(once.by_pair, np.sqrt(2) * plain.by_pair, rtol=0.15)
    np.testing.assert_allclose(by_one.by_pair[:6], 8 * plain.by_pair[:6], rtol=0.2)
    # Pairs that rotate by less than a step of the format at a time stay behind.
    assert (by_one.by_pair[10:16] > 16 * plain.by_pair[10:16]).all()


def test_casts_are_presets_or_stages():
    assert parse_rounding("half_cache_bfloat16").cast.label.startswith(
        "position=bfloat16"
    )
    two = parse_rounding("position:bfloat16+table:float16")
    assert (two.label, two.cast.label) == (
        "position=bfloat16+table=float16",
        "position=bfloat16,table=float16",
    )
    assert not parse_rounding("float64").rounds
    with pytest.raises(InputError, match="did you mean 'half_cache_bfloat16'"):
        parse_rounding("half_cache_bfloat")


def test_offsets_in_slow_pairs_round_all_pairs_by_a_scale_per_tensor_after_the_rotation():
    spectrum = Spectrum(inverse_frequencies(64, 1e5), 1e5, 64)
    for name in ("fp8_e4m3", "int4"):
        plain, far = (
            key_errors(parse_keys(name), spectrum, 4096, 0, o) for o in (0.0, 20.0)
        )
        assert far.score > plain.score
    # A channel of its own keeps the offset apart if keys are stored before RoPE, not
    # after it.
    before, after = (
        key_errors(parse_keys(name), spectrum, 65536, 0, 20.0)
        for name in ("int4(channel, before)", "int4(channel)")
    )
    assert before.score < after.score / 1.2
    assert before.by_pair[-1] < after.by_pair[-1] / 2


@pytest.mark.parametrize("text", ["int4(before,before)", "int4(channel,channel)"])
def test_a_word_of_keys_is_given_once(text: str) -> None:
    with pytest.raises(InputError):
        parse_keys(text)
