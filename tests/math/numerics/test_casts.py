"""Cast plans and presets: reading, writing, repairing."""

import pytest

from ropelab.math.numerics.casts import (
    EXACT,
    PRESETS,
    STAGES,
    CastPlan,
    find_preset,
    parse_cast,
)
from ropelab.math.numerics.formats import FORMATS
from ropelab.runs.errors import InputError


@pytest.mark.parametrize("preset", PRESETS.values(), ids=PRESETS)
def test_every_preset_reads_back_from_its_label_and_names_its_source(preset):
    assert parse_cast(preset.plan.label) == preset.plan
    assert preset.source and preset.models


def test_all_sets_every_stage_and_later_parts_win():
    plan = parse_cast("all=bfloat16, position=float32")
    assert plan.position == FORMATS["float32"]
    assert all(getattr(plan, stage) == FORMATS["bfloat16"] for stage in STAGES[1:])


@pytest.mark.parametrize(
    "text",
    [
        "table=bfloat16,table=float16",
        "table=float16, table = float16",
        "all=float16,all=bfloat16",
        "position=float32,all=bfloat16",
        "angles=recurrence,angles=recurrence",
        "all=float16,table=bfloat16,table=float16",
    ],
)
def test_a_stage_has_one_format(text: str) -> None:
    with pytest.raises(InputError, match=r"given twice|write it first"):
        parse_cast(text)


@pytest.mark.parametrize("text", ["bf16", "bfloat16", "all=bf16", "torch.bfloat16"])
def test_a_format_by_itself_sets_every_stage(text):
    plan = parse_cast(text)
    assert plan == parse_cast("all=bfloat16")
    assert plan.title == "all=bfloat16"


def test_a_title_reads_back_as_its_plan():
    for text in ("bf16,table=float32", "all=fp16,angles=recurrence", "float64"):
        assert parse_cast(parse_cast(text).title) == parse_cast(text)


def test_a_plan_differs_from_exact_in_what_it_names():
    assert parse_cast("angle=tf32").list_inexact() == [("angle", FORMATS["tf32"])]
    assert [name for name, _ in parse_cast("all=float16").list_inexact()] == list(
        STAGES
    )
    assert CastPlan().list_inexact() == []
    assert CastPlan().label == "float64"


def test_repairing_every_stage_and_rule_gives_the_exact_plan():
    plan = parse_cast("all=float16,frequencies=float32_pow,angles=recurrence")
    for name, _ in plan.list_inexact():
        plan = plan.repair(name)
    assert plan == CastPlan()


def test_phase_and_stored_keep_what_decides_angles_and_tables():
    plan = parse_cast("all=bfloat16")
    assert (plan.phase.angle, plan.phase.table) == (FORMATS["bfloat16"], EXACT)
    assert (plan.storage.table, plan.storage.rotation) == (FORMATS["bfloat16"], EXACT)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("inv_frek=bfloat16", "unknown stage 'inv_frek'; did you mean 'inv_freq'"),
        ("angle=bfloat61", "unknown format 'bfloat61'; did you mean 'bfloat16'"),
        ("angles=recurence", "did you mean 'recurrence'"),
        ("bfloat17", "write stage=format"),
        ("angle", "write stage=format"),
    ],
)
def test_bad_casts_get_one_clear_line(text, message):
    with pytest.raises(InputError, match=message):
        parse_cast(text)


def test_an_unknown_preset_gets_the_nearest_name():
    with pytest.raises(InputError, match="did you mean 'nanochat'"):
        find_preset("nanochatt")
