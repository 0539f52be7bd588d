"""Two casts on the same tokens, compared with plain softmax and KL of torch."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from torch.nn.functional import kl_div

from ropelab.experiments.evaluate import EvaluateConfig, results
from ropelab.experiments.extrapolate import ExtrapolateConfig
from ropelab.experiments.extrapolate import results as extrapolate
from ropelab.math.numerics.keys import parse_keys, parse_rounding
from ropelab.models.encoding.rounded import RoundedRope
from ropelab.models.released.model import ReleasedModel
from ropelab.models.tasks.config import read_against
from ropelab.models.tasks.divergence import Divergence, join_buckets
from ropelab.models.tasks.modes import Rounded, WithMethod
from ropelab.runs.cell import Context, hash_cell
from ropelab.runs.config import build
from ropelab.runs.errors import InputError
from tests.models.released.tiny import reader_of_bytes
from tests.models.tasks.running import made

CAST = "angle:bfloat16"
SAME = "float32"
LARGEST = "largest_difference_nats_per_token"


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    return reader_of_bytes(tmp_path_factory.mktemp("llama"), bos=True, head_dim=32)


@pytest.fixture(scope="module")
def configured(model, corpora):
    def make(**changes: object) -> EvaluateConfig:
        values = {"model": model, "documents": 3, "device": "cpu", "tasks": "text"}
        values |= {"corpus": corpora[0], "casts": f"{CAST},{SAME}", "against": SAME}
        return build(EvaluateConfig, {**values, **changes})

    return make


@pytest.fixture(scope="module")
def tables(configured) -> dict[str, pd.DataFrame]:
    return made(results, configured(), Context())


def compute_plainly(
    config: EvaluateConfig, casts: tuple[str, str] = (CAST, SAME)
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return KL and the differences of log-probabilities, [documents, tokens]."""
    released = ReleasedModel(Path(config.model))
    tokens, _ = config.text.documents(config.context + 1, config.documents)
    base = config.facts.geometry().base
    all_logits = []
    for text in casts:
        own = released.own_rotation(config.context)
        released.encoding = RoundedRope(own, parse_rounding(text), base)
        with torch.no_grad():
            hidden = released.hidden_states(tokens[:, :-1])
            all_logits.append(released.head(hidden).double())

    p, q = (logits.softmax(-1) for logits in all_logits)
    divergence = kl_div(q.log(), p, reduction="none").sum(-1)
    targets = tokens[:, 1:, None]
    ratios = (p.log() - q.log()).gather(-1, targets)[..., 0]
    return divergence, ratios


@pytest.mark.slow
def test_the_direction_and_the_order_of_casts(configured, tables):
    """p is that of the cast: KL and its signs follow the order, differences do not."""
    exchanged = made(results, configured(casts=SAME, against=CAST), Context())
    one = tables["divergence"].set_index("cast").loc["angle=bfloat16"]
    other = exchanged["divergence"].iloc[0]
    assert other["against"] == "angle=bfloat16"
    assert one[LARGEST] == other[LARGEST]
    assert one["share_beyond"] == other["share_beyond"]
    divergence, _ = compute_plainly(configured(), (SAME, CAST))
    assert other["kl_nats_per_token"] == pytest.approx(
        float(divergence.mean()), rel=1e-6
    )
    assert one["kl_nats_per_token"] != other["kl_nats_per_token"]


def test_plain_softmax_gives_the_same_numbers(configured, tables):
    divergence, ratios = compute_plainly(configured())
    table = tables["divergence"]
    row = table[table["cast"] == "angle=bfloat16"].iloc[0]
    assert row["kl_nats_per_token"] == pytest.approx(float(divergence.mean()), rel=1e-6)
    assert row[LARGEST] == pytest.approx(float(ratios.abs().max()), rel=1e-6)
    share = (ratios.abs() > 0.01).double().mean()
    assert row["share_beyond"] == pytest.approx(float(share))
    mean = row["mean_difference_nats_per_token"]
    assert mean == pytest.approx(float(ratios.abs().mean()), rel=1e-6)
    assert row["tokens"] == divergence.numel()
    assert row["documents"] == 3
    assert row["kl_ci_low"] <= row["kl_nats_per_token"] <= row["kl_ci_high"]


def test_buckets_are_parts_of_whole_documents(configured, tables):
    divergence, _ = compute_plainly(configured())
    by_place = tables["divergence_by_place"]
    rows = by_place[by_place["cast"] == "angle=bfloat16"]
    assert len(rows) > 1
    for row in rows.to_dict("records"):
        part = divergence[:, row["bucket_start_tokens"] : row["bucket_end_tokens"]]
        assert row["kl_nats_per_token"] == pytest.approx(float(part.mean()), rel=1e-6)


def test_buckets_count_by_their_tokens():
    same = {"method": "none", "factor": 1.0, "cast": CAST, "against": SAME, "seed": 0}
    means = ("kl_nats_per_token", "mean_difference_nats_per_token", "share_beyond")
    rows = []
    for start, end, value in ((0, 64, 1.0), (64, 256, 0.0)):
        row = {**same, "document": 0, **dict.fromkeys(means, value), LARGEST: 1 - value}
        row |= {"bucket_start_tokens": start, "bucket_end_tokens": end}
        rows.append({**row, "tokens": end - start})
    (whole,) = join_buckets(pd.DataFrame(rows)).to_dict("records")
    assert [whole[name] for name in means] == [0.25] * 3
    assert whole[LARGEST] == 1.0
    assert (whole["bucket_start_tokens"], whole["bucket_end_tokens"]) == (0, 256)


def test_what_rounds_nothing_is_no_code_of_the_model(configured) -> None:
    """float32 holds these positions, so that nothing differs, and float64 is exact, where
    the model's own angles are rounded.
    """
    config = configured(casts="position:float32", against="float64", documents=2)
    row = made(results, config, Context())["divergence"].iloc[0]
    assert row["kl_nats_per_token"] == row[LARGEST] == 0

    cells = results.list_divergence_cells(
        configured(casts=CAST, against="float64", offsets="9")
    )
    for cell in cells:
        assert isinstance(cell.task, Divergence)
        assert isinstance(cell.task.other, Rounded)
        assert cell.task.other.rounding.first == 9


def test_both_casts_have_one_position_and_one_scaling(configured):
    cells = results.list_divergence_cells(
        configured(casts=CAST, offsets="9", methods="yarn")
    )
    scaled = [cell for cell in cells if dict(cell.labels)["method"] == "yarn"]
    assert scaled
    for cell in cells:
        assert isinstance(cell.task, Divergence)
        ours, theirs = cell.mode, cell.task.other
        assert isinstance(ours, Rounded)
        assert isinstance(theirs, Rounded)
        assert ours.rounding.first == theirs.rounding.first == 9
        assert ours.mode == theirs.mode
        assert isinstance(ours.mode, WithMethod) == (cell in scaled)


@pytest.mark.parametrize(
    ("share", "words"),
    [
        (0.125, "12% [10%, 15%]"),
        (0.0025, "0.25 [0.20, 0.30] %"),
        (0.0, "none"),
    ],
)
def test_the_share_is_said_in_percent_with_its_interval(tables, share, words):
    """The share of the table, from 0 to 1, is a hundred times as large in words."""
    table = tables["divergence"].set_index("cast")
    table = table.assign(
        share_beyond=share, share_ci_low=0.8 * share, share_ci_high=1.2 * share
    )
    changed = {**tables, "divergence": table.reset_index()}
    answer = results.answer(changed)
    assert f"by more than 0.01 in {words} of tokens" in answer


def test_a_model_without_a_scaling_is_compared_once(configured):
    """Unscaled, it is as it was published; YaRN is another computation."""
    cells = results.list_divergence_cells(configured(methods="unscaled,yarn"))
    methods = {dict(cell.labels)["method"] for cell in cells}
    assert methods == {"unmodified", "yarn"}


def test_a_cast_against_itself_changes_no_token(tables):
    table = tables["divergence"].set_index("cast")
    numbers = ["kl_nats_per_token", LARGEST, "share_beyond", "kl_ci_high"]
    assert (table.loc[SAME, numbers] == 0).all()


def test_an_overflow_is_refused(configured):
    """float16 ends at 65504: later positions would be infinite."""
    config = configured(casts="position:float16", offsets="65000", context=1024)
    with pytest.raises(InputError, match="overflows"):
        made(results, config, Context())


def test_the_answer_and_the_short_table_begin_with_the_comparison(tables):
    answer = results.answer(tables)
    assert answer.startswith("Unmodified, angle=bfloat16 against float32, ")
    short = results.make_further_tables(tables)["divergence"]
    assert list(short["cast"]) == ["angle=bfloat16", SAME]


def test_configs_without_it_are_what_they_were(configured):
    plain = configured(against="")
    assert "against" not in plain.model_dump()
    cells = {hash_cell(cell) for cell in results.cells(plain)}
    more = {hash_cell(cell) for cell in results.cells(configured())}
    assert cells < more
    assert len(more - cells) == 2 * 3


def test_every_part_of_the_comparison_is_in_the_key(configured):
    def name_cells(**changes: object) -> set[str]:
        cells = results.list_divergence_cells(configured(**changes))
        return {hash_cell(cell) for cell in cells}

    names = [
        name_cells(casts=CAST),
        name_cells(casts="angle:float16"),
        name_cells(casts=CAST, against="float64"),
        name_cells(casts=CAST, offsets="9"),
        name_cells(casts=CAST, against="fp8_e4m3"),
    ]
    assert len(set.union(*names)) == sum(map(len, names))


def test_formats_of_keys_are_compared_too():
    assert read_against("fp8_e4m3(head)").keys == parse_keys("fp8_e4m3(head)")
    assert read_against("bf16").cast.label == read_against("all:bfloat16").cast.label


@pytest.mark.parametrize(
    "changes",
    [{"against": "float33"}, {"against": "angel:float16"}, {"against": "int4(chanel)"}],
)
def test_unknown_casts_are_refused(configured, changes: dict[str, Any]):
    with pytest.raises(InputError):
        configured(**changes)


def test_nothing_to_compare_is_refused(configured):
    with pytest.raises(InputError, match="give casts or cache"):
        configured(casts="")


@pytest.mark.slow
def test_models_trained_here_are_compared_by_seed(corpora, tiny_preset):
    values: dict[str, object] = {"train_len": 64, "test_len": 128, "head_dim": 32}
    values |= {"documents": 3, "device": "cpu", "tasks": "text", "seeds": "0,1"}
    values |= {"corpus": corpora[0], "casts": CAST, "against": SAME}
    config = build(ExtrapolateConfig, values)
    tables = made(extrapolate, config, Context())
    table = tables["divergence"]
    assert list(table["method"]) == ["unscaled", "yarn"]
    assert (table["seeds"] == 2).all()
    assert (table["kl_nats_per_token"] >= 0).all()
    assert "angle=bfloat16 against float32" in extrapolate.answer(tables)
