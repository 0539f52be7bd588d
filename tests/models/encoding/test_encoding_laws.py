"""What every encoding must do inside a model, whatever its formula."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ropelab.models.encoding.registry import ENCODINGS, Shape, make_encoding
from ropelab.models.encoding.relative import distances, relative_shift, relative_unshift
from ropelab.models.lm.model import SCORES_PER_BLOCK, Cache, LanguageModel, ModelSize
from ropelab.runs.errors import InputError

NAMES = sorted(ENCODINGS)
TOKENS = 30
SHAPE = Shape(layers=2, width=12, heads=2, head_dim=8, trained_len=TOKENS)


def model_with(name: str, shape: Shape = SHAPE) -> LanguageModel:
    """A model with random weights everywhere, the encoding's included."""
    size = ModelSize(
        vocabulary=11,
        layers=shape.layers,
        width=shape.width,
        heads=shape.heads,
        head_dim=shape.head_dim,
    )
    model = LanguageModel(size, make_encoding(name, shape))
    torch.manual_seed(0)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    return model


def tokens(length: int = TOKENS) -> Tensor:
    return torch.randint(11, (2, length), generator=torch.Generator().manual_seed(1))


def assert_close(name: str, one: torch.Tensor, other: torch.Tensor) -> None:
    # Rotations, and softmaxes outside of the fused kernel, are done in float32.
    tolerance = 1e-10 if name in ("nope", "sinusoidal", "learned") else 1e-5
    torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_decoding_with_a_cache_is_the_full_pass(name: str) -> None:
    model, text = model_with(name).double(), tokens()
    cache = Cache()
    pieces = [text[:, :7], text[:, 7:12], *text[:, 12:].split(1, dim=1)]
    stepwise = torch.cat([model(piece, cache) for piece in pieces], dim=1)
    assert_close(name, stepwise, model(text))


@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_no_token_sees_later_ones(name: str) -> None:
    model, text = model_with(name).double(), tokens()
    changed = text.clone()
    changed[:, 20:] = (changed[:, 20:] + 1) % 11
    assert_close(name, model(changed)[:, :20], model(text)[:, :20])


LEARNING = [
    "deberta",
    "fire",
    "kerple_log",
    "kerple_power",
    "shaw",
    "t5",
    "transformer_xl",
]
LEARNING += [
    "convolution",
    "exponential",
    "gaussian",
    "learned_distance",
    "polynomial",
    "sines",
]
LEARNING += ["tupe", "fox", "path"]


@pytest.mark.parametrize("name", LEARNING)
def test_gradients_reach_every_parameter_and_are_right(name: str) -> None:
    layer = make_encoding(name, SHAPE).double().for_layer(0)
    positions = torch.arange(20)
    q, k, v = torch.randn(3, 1, 2, 20, 8, dtype=torch.float64)
    x = torch.randn(1, 20, 12, dtype=torch.float64)

    def attended(*_: Tensor) -> Tensor:
        scores = layer.scores(q, layer.extend_key(k, x), positions, positions)
        hidden = positions[None, :] > positions[:, None]
        weights = scores.masked_fill(hidden, -torch.inf).softmax(-1)
        return layer.mix(weights, v, positions, positions).square().sum()

    assert torch.autograd.gradcheck(attended, tuple(layer.parameters()), fast_mode=True)
    for parameter in layer.parameters():
        assert parameter.grad is None
    attended().backward()
    assert all(
        p.grad is not None and p.grad.abs().sum() > 0 for p in layer.parameters()
    )


ABSOLUTE = (
    "sinusoidal",
    "learned",
    "multiplied",
    "concatenated",
    "tupe",
    "fire",
    "fope",
)
# Those that end with their table are moved inside it.
RELATIVE = [n for n in NAMES if n not in ABSOLUTE]


@pytest.mark.parametrize("name", RELATIVE)
@torch.no_grad()
def test_relative_scores_do_not_change_when_all_positions_move(name: str) -> None:
    layer = make_encoding(name, SHAPE).double().for_layer(0)
    q, k = torch.randn(2, 1, 2, 20, 8, dtype=torch.float64)
    x = torch.randn(1, 20, 12, dtype=torch.float64)
    earlier = torch.ones(20, 20, dtype=torch.bool).tril()

    def scores(first: int) -> Tensor:
        positions = torch.arange(first, first + 20)
        turned = layer.query(q, positions), layer.extend_key(layer.key(k, positions), x)
        return layer.scores(*turned, positions, positions)[..., earlier]

    farther = 1000 if layer.max_position is None else min(1000, layer.max_position - 19)
    torch.testing.assert_close(scores(farther), scores(0), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "moves"), [("rope_values", True), ("rope_values_back", False)]
)
@torch.no_grad()
def test_turned_values_carry_positions_and_values_turned_back_distances(
    name: str, moves: bool
) -> None:
    layer = make_encoding(name, SHAPE).for_layer(0)
    weights, v = torch.rand(1, 2, 20, 20).tril(), torch.randn(1, 2, 20, 8)
    here, there = (
        layer.mix(weights, v, positions, positions)
        for positions in (torch.arange(20), torch.arange(500, 520))
    )
    assert torch.allclose(here, there, atol=1e-3) is not moves


@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_two_layers_notice_the_order_of_earlier_tokens(name: str) -> None:
    model = model_with(name).double()
    shuffled = tokens().clone()
    shuffled[:, : TOKENS - 1] = shuffled[:, : TOKENS - 1].flip(1)
    assert not torch.allclose(model(shuffled)[:, -1], model(tokens())[:, -1], atol=1e-3)


@torch.no_grad()
def test_one_layer_without_positions_does_not_notice_it() -> None:
    one = Shape(layers=1, width=12, heads=2, head_dim=8, trained_len=TOKENS)
    model = model_with("nope", one).double()
    shuffled = tokens().clone()
    shuffled[:, : TOKENS - 1] = shuffled[:, : TOKENS - 1].flip(1)
    torch.testing.assert_close(model(shuffled)[:, -1], model(tokens())[:, -1])


@pytest.mark.parametrize("name", NAMES)
def test_parameters_are_as_many_as_the_record_says(name: str) -> None:
    shape = Shape(layers=3, width=20, heads=3, head_dim=8, trained_len=50)
    formula = ENCODINGS[name].parameters
    counted = sum(p.numel() for p in make_encoding(name, shape).parameters())
    assert counted == eval(formula, {}, vars(shape))


@pytest.mark.parametrize("name", NAMES)
def test_the_seed_alone_decides_the_parameters(name: str) -> None:
    torch.manual_seed(5)
    first, state = make_encoding(name, SHAPE, seed=3), torch.get_rng_state()
    torch.manual_seed(6)
    second = make_encoding(name, SHAPE, seed=3)
    for a, b in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(a, b)
    torch.manual_seed(5)
    assert torch.equal(state, torch.get_rng_state())


def test_a_learned_table_is_not_the_embedding_of_the_same_seed() -> None:
    size = ModelSize(vocabulary=TOKENS, layers=1, width=12, heads=1, head_dim=8)
    model = LanguageModel(size, make_encoding("learned", SHAPE, seed=0), seed=0)
    (table,) = model.encoding.parameters()
    assert not torch.equal(table, model.embedding.weight)


@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_copies_and_saved_states_are_whole(name: str) -> None:
    model = model_with(name)
    twin = copy.deepcopy(model)
    fresh = LanguageModel(model.size, make_encoding(name, SHAPE, seed=9), seed=9)
    fresh.load_state_dict(model.state_dict())
    for parameter in model.parameters():
        parameter.zero_()
    assert torch.equal(twin(tokens()), fresh(tokens()))
    assert twin(tokens()).abs().sum() > 0


def test_unknown_names_get_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'alibi'"):
        make_encoding("alibbi", SHAPE)


class LargestTensor(TorchDispatchMode):
    """Remembers how many numbers the largest tensor had that any operation returned."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, Tensor):
                self.numbers = max(self.numbers, leaf.untyped_storage().nbytes() // 4)
        return out


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_8192_tokens_need_a_block_of_scores_at_a_time(name: str) -> None:
    shape = Shape(layers=1, width=8, heads=2, head_dim=8, trained_len=8192)
    model, text = model_with(name, shape), tokens(8192)[:1]
    with LargestTensor() as largest:
        model.hidden_states(text)
    assert largest.numbers <= SCORES_PER_BLOCK
    assert shape.heads * 8192**2 / 10 > SCORES_PER_BLOCK


def test_relative_shift_puts_each_distance_at_its_key() -> None:
    q_positions, k_positions = torch.arange(6, 9), torch.arange(2, 9)
    distance = distances(q_positions, k_positions)
    shifted = relative_shift(distance.expand(2, 3, -1).clone(), len(k_positions))
    assert torch.equal(shifted[1], q_positions[:, None] - k_positions[None, :])


@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (1, 5), (4, 4), (3, 7)])
def test_relative_unshift_is_the_inverse(queries: int, keys: int) -> None:
    by_key = torch.randn(2, queries, keys)
    columns = relative_unshift(by_key)
    assert columns.shape == (2, queries, queries + keys)
    assert torch.equal(relative_shift(columns, keys), by_key)
    torch.testing.assert_close(columns.sum(-1), by_key.sum(-1))


@pytest.mark.parametrize("name", ["transformer_xl", "deberta"])
def test_kept_distance_tables_are_fresh_ones(name: str) -> None:
    layer, positions = make_encoding(name, SHAPE).for_layer(0), torch.arange(40)
    q, k = torch.randn(2, 1, 2, 40, 8)
    with torch.no_grad():
        kept = [layer.scores(q, k, positions, positions) for _ in range(2)]
    fresh = layer.scores(q, k, positions, positions)
    assert torch.equal(kept[0], kept[1])
    assert torch.equal(kept[0], fresh)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.mul_(2)
        changed = layer.scores(q, k, positions, positions)
    assert torch.equal(changed, layer.scores(q, k, positions, positions))
    assert not torch.allclose(changed, kept[0])


def test_a_share_that_is_rotated_has_a_pair_in_the_narrowest_head_allowed() -> None:
    for name, record in ENCODINGS.items():
        if "share" in record.options:
            width = record.least_head_dim
            narrow = Shape(layers=1, width=8, heads=1, head_dim=width, trained_len=8)
            x = torch.ones(1, 1, 2, width)
            rotated = make_encoding(name, narrow).query(x, torch.arange(2))
            assert not torch.equal(rotated, x)
