"""Rotary codes with one known mistake each, and the sentence that names it."""

import json
import math
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import ropelab
from ropelab.conformance.check import check
from ropelab.conformance.diagnosis import Check
from ropelab.conformance.frequencies import recover_frequencies
from ropelab.conformance.rotations import observe_rotation
from ropelab.math.numerics.formats import FORMATS, round_to
from ropelab.runs.errors import InputError
from tests.texts import mentions

LLAMA = {
    "model_type": "llama",
    "hidden_size": 256,
    "num_attention_heads": 4,
    "max_position_embeddings": 32768,
    "rope_theta": 500000.0,
    "num_hidden_layers": 1,
    "intermediate_size": 16,
    "vocab_size": 16,
}
YARN = {
    "rope_type": "yarn",
    "factor": 4.0,
    "original_max_position_embeddings": 8192,
}
POSITIONS = np.array(
    [0, 1, 2, 3, 4, 8, 16, 64, 255, 256, 2047, 2048, 4097, 16383, 32767]
)
PAIRS = 32


def spec(config):
    from ropelab.readers.registry import RUNTIMES, read

    return read(RUNTIMES["transformers-5"], config).main_spec


def checked(tmp_path, inv_freq, gain=1.0, table=None, angle=None, config=LLAMA):
    """The check of an .npz of tables beside its configuration."""
    angles = POSITIONS[:, None] * inv_freq
    if angle:
        angles = round_to(angles, FORMATS[angle])
    cos, sin = gain * np.cos(angles), gain * np.sin(angles)
    if table:
        cos, sin = (round_to(part, FORMATS[table]) for part in (cos, sin))
    np.savez(tmp_path / "tables.npz", positions=POSITIONS, cos=cos, sin=sin)
    (tmp_path / "config.json").write_text(json.dumps(config))
    return check(str(tmp_path / "tables.npz"), config=str(tmp_path / "config.json"))


def ladder(base=500000.0, width=64):
    return base ** (-2 * np.arange(PAIRS) / width)


def test_right_tables_are_right(tmp_path):
    for table in (None, "bfloat16"):
        done = checked(tmp_path, ladder(), table=table)
        assert not done.wrong, done.answer
    assert mentions(done.answer, "table in bfloat16")


@pytest.mark.parametrize(
    ("inv_freq", "says"),
    [
        (ladder(10000.0), "base 10000 instead of 500000"),
        (ladder(width=128), "the exponent divides by 128 instead of 64"),
        (2 * ladder(), "rotated twice"),
        (ladder()[:16], "32 features rotate instead of 64"),
        (round_to(ladder(), FORMATS["bfloat16"]), "inv_freq in bfloat16"),
        (np.random.default_rng(0).random(PAIRS), "uninitialised"),
    ],
)
def test_wrong_frequencies_are_named(tmp_path, inv_freq, says):
    done = checked(tmp_path, inv_freq)
    assert done.wrong
    assert says in done.answer


def test_numbers_in_order_are_not_taken_for_uninitialised_memory(
    tmp_path: Path,
) -> None:
    """An inverted ramp is a mistake in a formula; random numbers and zeros are not."""
    ramp = np.clip((np.arange(PAIRS) - 8) / 8, 0, 1)
    done = checked(tmp_path, ladder() * (1 - 0.4 * ramp))
    assert done.wrong
    assert "uninitialised" not in done.answer
    assert mentions(done.answer, "23 of 32", "9 to 31", 0.6)
    assert "uninitialised" in checked(tmp_path, np.zeros(PAIRS)).answer
    assert "wrong sign" in checked(tmp_path, -ladder()).answer


def test_shifted_positions_and_swapped_tables_are_named(tmp_path: Path) -> None:
    def says(cos: np.ndarray, sin: np.ndarray) -> str:
        np.savez(tmp_path / "tables.npz", positions=POSITIONS, cos=cos, sin=sin)
        (tmp_path / "config.json").write_text(json.dumps(LLAMA))
        return check(
            str(tmp_path / "tables.npz"), config=str(tmp_path / "config.json")
        ).answer

    angles = POSITIONS[:, None] * ladder()
    assert mentions(says(np.sin(angles), np.cos(angles)), "cos", "sin", "swapped")
    for shift in (1, -1, 2):
        moved = angles + shift * ladder()
        assert says(np.cos(moved), np.sin(moved)) == f"positions are shifted by {shift}"


def test_wrong_yarn_is_named(tmp_path):
    config = {**LLAMA, "rope_scaling": YARN}
    right = spec(config)
    inv_freq, gain = right.inv_freq(1), right.attention_factor
    cases = (
        (inv_freq, gain, None),
        (ladder(), gain, "the scaling is not applied"),
        (inv_freq**2 / ladder(), gain, "the factor is applied twice"),
        (
            spec(
                {
                    **config,
                    "rope_scaling": {**YARN, "original_max_position_embeddings": 4096},
                }
            ).inv_freq(1),
            gain,
            "original length 4096 instead of 8192",
        ),
        (inv_freq, 1.0, "attention factor 1.13863 is missing"),
        (inv_freq, gain**2, "attention factor 1.13863 is applied twice"),
    )
    for frequency, factor, says in cases:
        done = checked(tmp_path, frequency, factor, config=config)
        assert done.wrong == (says is not None), done.answer
        assert (says or "within") in done.answer


def test_a_factor_of_two_that_is_missing_is_not_taken_for_a_second_rotation(tmp_path):
    config = {**LLAMA, "rope_scaling": {"rope_type": "linear", "factor": 2.0}}
    done = checked(tmp_path, ladder(), config=config)
    assert mentions(done.answer, "not applied", "pi(factor=2)", "missing")


def test_the_wrong_longrope_table_is_named(tmp_path):
    long, short = (1 + np.arange(PAIRS) / 4).tolist(), [1.0] * PAIRS
    block = {"rope_type": "longrope", "long_factor": long, "short_factor": short}
    block |= {"original_max_position_embeddings": 8192, "attention_factor": 1.0}
    done = checked(tmp_path, ladder(), config={**LLAMA, "rope_scaling": block})
    assert mentions(done.answer, "short table", 32768)


@pytest.mark.parametrize("fmt", ["bfloat16", "float16"])
def test_rounded_angles_are_found(tmp_path, fmt):
    done = checked(tmp_path, ladder(), angle=fmt)
    assert done.wrong
    assert f"angle in {fmt}" in done.answer


CODE = """
import numpy as np

def rotate(adjacent=False, sign=1, times=1, shift=0):
    inv = 500000.0 ** (-np.arange(0, 64, 2) / 64)
    def turn(x, positions):
        for _ in range(times):
            a = sign * positions[:, None] * inv
            first, second = (x[:, 0::2], x[:, 1::2]) if adjacent else (x[:, :32], x[:, 32:])
            y = first * np.cos(a) - second * np.sin(a), first * np.sin(a) + second * np.cos(a)
            x = np.stack(y, -1).reshape(x.shape) if adjacent else np.concatenate(y, -1)
        return x
    return turn

def right(): return rotate()
def with_torch():
    import torch
    inv = torch.tensor(500000.0) ** (-torch.arange(0, 64, 2) / 64)
    def turn(x, positions):
        a = torch.outer(positions, inv)
        first, second = x.chunk(2, dim=-1)
        cos, sin = a.cos(), a.sin()
        return torch.cat([first * cos - second * sin, first * sin + second * cos], -1)
    return turn
def adjacent(): return rotate(adjacent=True)
def twice(): return rotate(times=2)
def other_way(): return rotate(sign=-1)
def nothing(): return lambda x, positions: x
def tables(): return lambda positions: (np.cos(positions[:, None] * np.ones(32)),) * 2
number = 3
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "users_rope.py").write_text(CODE)
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    monkeypatch.chdir(tmp_path)
    return "config.json"


@pytest.mark.slow
def test_code_is_looked_at_by_rotating_unit_vectors(module):
    def says(factory):
        return check(f"users_rope:{factory}", config=module)

    assert not says("right").wrong
    assert not says("with_torch").wrong
    assert mentions(says("other_way").answer, "wrong sign")
    assert mentions(says("adjacent").answer, "adjacent", "instead of half")
    assert "rotated twice" in says("twice").answer
    assert mentions(says("nothing").answer, "no rotation")
    with pytest.raises(InputError, match="cannot load users_rope:missing"):
        says("missing")


def test_a_folder_is_checked_without_its_code(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({**LLAMA, "rope_scaling": YARN}))
    (tmp_path / "modeling_llama.py").write_text("raise SystemExit('never run')")
    done = check(str(tmp_path))
    assert not done.wrong, done.answer
    rounded = check(str(tmp_path), dtype="bfloat16")
    assert "table in bfloat16" in rounded.answer


@pytest.mark.parametrize("length", [65521, 2**17, 10**12])
def test_formats_that_end_before_the_positions_do_are_left_out(tmp_path, length):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    casts = check(str(tmp_path), length=length).rows["casts"]
    assert not any("position in float16" in row["cast"] for row in casts)
    assert len(casts) > 10
    differences = [row["mean_difference"] for row in casts]
    assert differences == sorted(differences)
    assert np.isfinite(differences).all()


def test_formats_that_end_before_the_attention_factor_does_are_left_out(tmp_path):
    config = {**LLAMA, "rope_scaling": {**YARN, "attention_factor": 1e5}}
    casts = checked(tmp_path, spec(config).inv_freq(1), 1e5, config=config).rows[
        "casts"
    ]
    assert casts[0] == {"cast": "float32", "mean_difference": pytest.approx(0, abs=1e2)}
    assert not any("table in float16" in row["cast"] for row in casts)
    assert np.isfinite([row["mean_difference"] for row in casts]).all()


def test_an_attention_factor_that_no_format_holds_is_named(tmp_path):
    config = {**LLAMA, "rope_scaling": {**YARN, "attention_factor": 1e40}}
    done = checked(tmp_path, spec(config).inv_freq(1), 1e40, config=config)
    assert done.wrong
    assert mentions(done.answer, "1e+40", "overflow float32")


def test_frequencies_are_refined_at_larger_positions():
    inv_freq = ladder()

    def rotate(x, positions):
        angle = positions[:, None] * inv_freq
        cos, sin = (round_to(t(angle), FORMATS["bfloat16"]) for t in (np.cos, np.sin))
        first, second = x[:, :32], x[:, 32:]
        return np.concatenate(
            [first * cos - second * sin, first * sin + second * cos], -1
        )

    found = recover_frequencies(observe_rotation(rotate, spec(LLAMA), POSITIONS))
    np.testing.assert_allclose(found, inv_freq, rtol=2e-3)


def rotated(change: str) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    def rotate(x: np.ndarray, positions: np.ndarray) -> np.ndarray:
        angle = positions[:, None] * ladder()
        cos, sin = np.cos(angle), np.sin(angle) * (-1 if change == "backwards" else 1)
        if change == "reversed pairs":
            first, second = x[:, :32], x[:, :31:-1]
        else:
            first, second = x[:, :32], x[:, 32:]
        left = first * cos + second * sin * (1 if change == "no minus" else -1)
        right = first * sin + second * cos * (0 if change == "half done" else 1)
        return np.concatenate(
            [left, right[:, ::-1] if change == "reversed pairs" else right], -1
        )

    return rotate


def test_a_rotation_keeps_its_sign_and_names_irregular_pairs() -> None:
    right = observe_rotation(rotated(""), spec(LLAMA), POSITIONS)
    backwards = observe_rotation(rotated("backwards"), spec(LLAMA), POSITIONS)
    np.testing.assert_allclose(backwards.sin, -right.sin, atol=1e-12)
    assert (
        observe_rotation(rotated("reversed pairs"), spec(LLAMA), POSITIONS).partner
        == "irregular"
    )


def test_one_pair_with_a_factor_of_its_own_is_named(tmp_path: Path) -> None:
    gains = np.ones(PAIRS)
    gains[5] = 2.0
    done = checked(tmp_path, ladder(), gains)
    assert done.wrong
    assert mentions(done.answer, "pair 5", "position 0", "2 times")


@pytest.mark.parametrize("tolerance", [math.inf, math.nan, -1.0, 0.0, math.pi, 1e308])
def test_a_tolerance_is_a_positive_number(tolerance: float) -> None:
    with pytest.raises(InputError, match="tolerance must be a positive number"):
        ropelab.check("x.npz", config="config.json", tolerance=tolerance)


@pytest.mark.processes
def test_the_command_and_its_statuses(tmp_path):
    checked(tmp_path, ladder(10000.0))
    command = [sys.executable, "-m", "ropelab", "check", str(tmp_path / "tables.npz")]
    config = ["--config", str(tmp_path / "config.json")]
    done = subprocess.run([*command, *config], capture_output=True, text=True)
    assert done.returncode == 3
    assert mentions(done.stdout, "base 10000", "instead of 500000")
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert "give --config" in done.stderr


def test_casts_are_a_table_in_python(tmp_path):
    checked(tmp_path, ladder())
    done = ropelab.check(
        str(tmp_path / "tables.npz"), config=str(tmp_path / "config.json")
    )
    assert done.tables["casts"].cast[0] == "float32"
    assert "nearest to float32" in done.answer


def judge_two_tables(tmp_path: Path, first: str, second: str) -> Check:
    """Check a file that has right tables under `second`, and others under `first`."""
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    angles = POSITIONS[:, None] * ladder()
    wrong = POSITIONS[:, None] * ladder(1e4)
    arrays = {
        "positions": POSITIONS,
        "sin": np.sin(angles),
        first: np.cos(wrong),
        second: np.cos(angles),
    }
    np.savez(tmp_path / "tables.npz", **arrays)
    config = str(tmp_path / "config.json")
    return check(str(tmp_path / "tables.npz"), config=config)


def test_of_two_tables_with_one_name_none_is_judged_alone(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a\.cos and b\.cos differ"):
        judge_two_tables(tmp_path, "a.cos", "b.cos")
    with pytest.raises(InputError, match=r"b\.cos and a\.cos differ"):
        judge_two_tables(tmp_path, "b.cos", "a.cos")


def test_equal_tables_of_several_layers_are_one(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    arrays = {f"layers.{layer}.rotary.inv_freq": ladder() for layer in range(3)}
    np.savez(tmp_path / "tables.npz", **arrays)
    config = str(tmp_path / "config.json")
    assert not check(str(tmp_path / "tables.npz"), config=config).wrong


def test_two_arrays_of_one_name_in_an_archive_are_refused(tmp_path: Path) -> None:
    checked(tmp_path, ladder())
    path = tmp_path / "tables.npz"
    with zipfile.ZipFile(path) as parts:
        content = parts.read("cos.npy")
    with (
        zipfile.ZipFile(path, "a") as parts,
        pytest.warns(UserWarning, match="Duplicate name"),
    ):
        parts.writestr("cos.npy", content)
    with pytest.raises(InputError, match="2 arrays with the name cos"):
        check(str(path), config=str(tmp_path / "config.json"))


@pytest.mark.parametrize("scaling", ["yarn", "llama3"])
def test_one_wrong_frequency_is_no_other_ramp(tmp_path: Path, scaling: str) -> None:
    """A line through the shares of all pairs passes near a pair that is 1 % off."""
    block = {**YARN, "rope_type": scaling, "factor": 16.0}
    if scaling == "llama3":
        block |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
    config = {**LLAMA, "rope_scaling": block}
    (tmp_path / "config.json").write_text(json.dumps(config))
    right = spec(config).inv_freq(32768)
    # In slower pairs the error stays below the tolerance.
    for pair in np.flatnonzero(right * 32767 > 2):
        inv_freq = right.copy()
        inv_freq[pair] *= 1.01
        np.savez(tmp_path / "mine.npz", inv_freq=inv_freq)
        done = check(tmp_path / "mine.npz", config=tmp_path / "config.json")
        assert done.wrong
        assert mentions(done.answer, f"1 of {PAIRS} frequencies", f"pairs {pair} to")
        assert not mentions(done.answer, "ramp")


@pytest.mark.parametrize("halves", [1, 2])
def test_tables_at_the_positions_of_a_kit(tmp_path: Path, halves: int) -> None:
    """As many rows as the kit has are those of the kit, or of 0, 1, 2, and so on."""
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    ropelab.vectors(str(tmp_path / "config.json"), str(tmp_path))
    with np.load(tmp_path / "vectors.npz") as kit:
        cos = np.tile(kit["cos"], halves)
        sin = np.tile(kit["sin"], halves)
        angles = np.arange(len(cos))[:, None] * np.tile(kit["inv_freq"], halves)

    np.savez(tmp_path / "mine.npz", cos=cos, sin=sin)
    assert not check(tmp_path / "mine.npz").wrong
    np.savez(tmp_path / "mine.npz", cos=np.cos(angles), sin=np.sin(angles))
    assert not check(tmp_path / "mine.npz").wrong
    wrong = cos.copy()
    wrong[4, 3] += 0.3
    np.savez(tmp_path / "mine.npz", cos=wrong, sin=sin)
    assert check(tmp_path / "mine.npz").wrong


def test_a_folder_of_params_has_no_class_in_transformers(tmp_path: Path) -> None:
    params = {"dim": 256, "n_layers": 1, "n_heads": 4, "rope_theta": 1e6}
    (tmp_path / "params.json").write_text(json.dumps({**params, "vocab_size": 16}))
    with pytest.raises(InputError, match="transformers builds no class from it"):
        check(tmp_path)
