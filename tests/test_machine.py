"""The number format follows the processor, and a format asked for by name is taken."""

from contextlib import contextmanager

import pytest
import torch

from ropelab.runs import machine


@pytest.fixture
def processor(monkeypatch):
    """Sets what the CPU and torch's library for products say of bfloat16."""

    def say(units: bool, library: bool) -> None:
        has = {"amx_bf16": units}
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: has, raising=False)
        ops = type(
            "mkldnn", (), {"_is_mkldnn_bf16_supported": staticmethod(lambda: library)}
        )
        monkeypatch.setattr(torch.ops, "mkldnn", ops, raising=False)

    return say


@pytest.mark.parametrize(
    ("units", "library", "dtype"),
    [
        (True, True, "bfloat16"),
        (True, False, "float32"),
        (False, True, "float32"),
        (False, False, "float32"),
    ],
)
def test_auto_is_bfloat16_only_where_both_say_so(processor, units, library, dtype):
    processor(units, library)
    assert machine.resolve_dtype("auto", "cpu") == dtype


def test_capabilities_without_the_key_mean_float32(monkeypatch):
    monkeypatch.setattr(torch.cpu, "get_capabilities", dict, raising=False)
    assert machine.resolve_dtype("auto", "cpu") == "float32"


@pytest.mark.parametrize(("tiles", "dtype"), [(True, "bfloat16"), (False, "float32")])
def test_a_torch_without_a_list_of_capabilities_is_asked_for_tiles(
    processor, monkeypatch, tiles, dtype
):
    processor(False, True)
    monkeypatch.delattr(torch.cpu, "get_capabilities")
    # Those of newer releases would ask for the list.
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: tiles)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)
    assert machine.resolve_dtype("auto", "cpu") == dtype


@pytest.mark.parametrize("asked", ["float32", "bfloat16"])
def test_a_format_asked_for_is_taken(processor, asked):
    processor(False, False)
    assert machine.resolve_dtype(asked, "cpu") == asked


@pytest.mark.parametrize(
    ("dtype", "units", "sentence"),
    [
        (
            "bfloat16",
            True,
            "computing in bfloat16: this CPU has matrix units for bfloat16",
        ),
        ("float16", True, "computing in float16"),
        ("auto", False, "computing in the format of the model"),
        (
            "float32",
            False,
            "computing in float32: this CPU has no matrix units for bfloat16",
        ),
        (
            "float32",
            True,
            "computing in float32, though this CPU has matrix units for bfloat16",
        ),
        (
            "bfloat16",
            False,
            "computing in bfloat16: this CPU has no matrix units for bfloat16, "
            "so this will be slow",
        ),
    ],
)
def test_the_line_says_which_and_why(processor, dtype, units, sentence):
    processor(units, units)
    assert machine.explain_dtype(dtype, "cpu") == sentence


@pytest.mark.parametrize(
    ("dtype", "expected"), [("float32", False), ("bfloat16", True)]
)
def test_products_are_made_in_the_format(dtype, expected):
    one = torch.ones(4, 4)
    with machine.computing_in(dtype, "cpu"):
        assert ((one @ one).dtype == torch.bfloat16) is expected


def test_a_weight_that_changes_is_rounded_again_inside_another_autocast():
    weight = torch.nn.Parameter(torch.ones(4, 4))
    one = torch.ones(4, 4)
    products = []
    with machine.use_torch_defaults(), torch.autocast("cpu", torch.bfloat16):
        for _ in range(2):
            with machine.computing_in("bfloat16", "cpu"):
                products.append(float((one @ weight)[0, 0].detach()))
            with torch.no_grad():
                weight.mul_(2)
    assert products == [4, 8]


def test_a_cell_is_computed_on_the_gpu_that_it_was_given(monkeypatch):
    import torch

    told = []

    @contextmanager
    def device(number):
        told.append(number)
        yield
        told.append("left")

    monkeypatch.setattr(torch.cuda, "device", device)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: told.append("emptied"))
    with machine.one_gpu(1):
        told.append("computed")
    assert told == [1, "computed", "emptied", "left"]
