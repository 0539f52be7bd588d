"""Tables under the names and in the shapes that engines store them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from ropelab.conformance.check import check
from ropelab.conformance.diagnosis import Check
from ropelab.runs.errors import InputError
from tests.conformance.test_planted import PLAIN, YARN
from tests.texts import mentions

THETA = 500000.0 ** (-np.arange(32) / 32)
Arrays = dict[str, np.ndarray]


def cache(theta: np.ndarray, rows: int = 512, gain: float = 1.0) -> np.ndarray:
    """vLLM's: cos and sin of each pair beside each other."""
    angles = np.arange(rows)[:, None] * theta
    return gain * np.concatenate([np.cos(angles), np.sin(angles)], -1)


def complex_table(theta: np.ndarray) -> np.ndarray:
    """Meta's freqs_cis."""
    return np.exp(1j * np.arange(512)[:, None] * theta)


def checked(folder: Path, arrays: Arrays, config: dict[str, Any] = PLAIN) -> Check:
    (folder / "config.json").write_text(json.dumps(config))
    np.savez(folder / "dump.npz", allow_pickle=False, **arrays)
    return check(str(folder / "dump.npz"), config=str(folder / "config.json"))


DUMPS: dict[str, Callable[[np.ndarray], Arrays]] = {
    "cos_sin_cache": lambda theta: {"cos_sin_cache": cache(theta)},
    "long cache": lambda theta: {"cos_sin_cache": cache(theta, 8192)},
    "bfloat16 cache": lambda theta: {
        "cos_sin_cache": torch.tensor(cache(theta, 32768)).bfloat16().float().numpy()
    },
    "freqs_cis": lambda theta: {"freqs_cis": complex_table(theta)},
    "freqs_cis as parts": lambda theta: {
        "freqs_cis": np.stack(
            [complex_table(theta).real, complex_table(theta).imag], -1
        )
    },
    "inv_freq": lambda theta: {"inv_freq": theta.astype(np.float32)},
    "a buffer of a model": lambda theta: {
        "model.layers.0.self_attn.rotary_emb.cos_sin_cache": cache(theta)
    },
}


@pytest.mark.parametrize("name", DUMPS)
def test_a_dump_is_judged(tmp_path: Path, name: str) -> None:
    assert not checked(tmp_path, DUMPS[name](THETA)).wrong
    done = checked(tmp_path, DUMPS[name](1e4 ** (-np.arange(32) / 32)))
    assert done.wrong
    assert mentions(done.answer, "base 10000", "instead of 500000")


def test_inv_freq_alone_says_what_it_does_not_show(tmp_path: Path) -> None:
    done = checked(tmp_path, {"inv_freq": THETA})
    apart = "tables", "pairs", "factors"
    assert mentions(done.answer, "inv_freq alone", *apart, "not judged")


def test_the_attention_factor_is_in_a_cache_and_not_in_frequencies(
    tmp_path: Path,
) -> None:
    ramp = np.clip((np.arange(32) - 12) / (21 - 12), 0, 1)
    theta = THETA * (ramp / 4 + 1 - ramp)
    factor = 1.138629436111989
    assert not checked(tmp_path, {"inv_freq": theta}, YARN).wrong
    right = {"cos_sin_cache": cache(theta, gain=factor)}
    assert not checked(tmp_path, right, YARN).wrong
    done = checked(tmp_path, {"cos_sin_cache": cache(theta)}, YARN)
    assert mentions(done.answer, "attention factor 1.13863", "missing")


def test_a_long_table_is_judged_in_all_its_rows(tmp_path: Path) -> None:
    table = cache(THETA, 8192)
    table[5000] = table[4999]
    done = checked(tmp_path, {"cos_sin_cache": table})
    assert done.wrong
    assert mentions(done.answer, "1 of 8192")
    assert "at position 5000" in done.answer


def test_a_dump_may_be_of_safetensors(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(PLAIN))
    path = tmp_path / "dump.safetensors"
    for tensors in (
        {"cos_sin_cache": torch.tensor(cache(THETA)).bfloat16()},
        {"freqs_cis": torch.tensor(complex_table(THETA)).to(torch.complex64)},
    ):
        save_file(tensors, path)
        assert not check(str(path), config=str(tmp_path / "config.json")).wrong


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"cos_sin_cache": np.ones((4, 3))}, r"cos_sin_cache has shape \(4, 3\)"),
        ({"freqs_cis": np.ones((4, 3))}, r"freqs_cis has shape \(4, 3\)"),
        ({"inv_freq": np.ones((4, 3))}, r"inv_freq has shape \(4, 3\)"),
        ({"table": np.ones((4, 3))}, "cos_sin_cache, freqs_cis or inv_freq, it has"),
    ],
)
def test_other_shapes_are_refused_in_one_line(
    tmp_path: Path, arrays: Arrays, says: str
) -> None:
    with pytest.raises(InputError, match=says) as caught:
        checked(tmp_path, arrays)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("scaling", "is_said"),
    [(None, True), ({"rope_type": "dynamic", "factor": 4.0}, False)],
    ids=["the same at every length", "dynamic"],
)
def test_a_length_that_changes_nothing_is_said_to_have_no_effect(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    scaling: dict[str, Any] | None,
    is_said: bool,
) -> None:
    checked(
        tmp_path, {"cos_sin_cache": cache(THETA)}, {**PLAIN, "rope_scaling": scaling}
    )
    assert not capsys.readouterr().err
    config = str(tmp_path / "config.json")
    check(str(tmp_path / "dump.npz"), config=config, length=65536)
    assert ("--length has no effect" in capsys.readouterr().err) is is_said
