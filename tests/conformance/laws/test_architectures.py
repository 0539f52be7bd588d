"""Every architecture of the table in docs/doctor.md, asked every law again."""

import pytest
import torch

from ropelab.conformance.laws.batch import SECOND_BEGIN
from ropelab.conformance.laws.doctor import doctor
from ropelab.conformance.laws.law import TOKENS
from tests.conformance.laws.architectures import (
    DOCUMENT,
    MODELS,
    diagnosed,
    row,
    verdicts,
)
from tests.models.released.tiny import apart, untouched
from tests.small import mostly_slow

LINES = verdicts(DOCUMENT.read_text(encoding="utf-8"))

# The others are asked by `make test-all`.
FEW = ("llama", "gemma3_text", "deepseek_v3", "gpt_neox", "phi3")


@pytest.mark.slow
@pytest.mark.parametrize("name", mostly_slow(MODELS, FEW))
def test_an_architecture_keeps_the_laws_that_the_document_says(name: str) -> None:
    done = diagnosed(name)
    assert verdicts(row(name, done))[0] in LINES, "make doctor"
    broken = [trial for trial in done.rows["trials"] if trial["verdict"] == "broken"]
    assert [
        (trial["law"], trial["trial"]) for trial in broken if not trial["kind"]
    ] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "law"),
    [
        ("gpt_oss", "packing"),
        ("falcon", "packing"),
        ("ministral3", "shift"),
        ("lfm2", "packing"),
    ],
)
def test_architectures_that_are_known_to_break_a_law_do(name: str, law: str) -> None:
    laws = {row["law"]: row for row in diagnosed(name).rows["laws"]}
    assert laws[law]["verdict"] == "broken"
    assert laws[law]["size"] > 0.1


@torch.inference_mode()
def test_packing_holds_with_the_masks_that_the_document_sends_windows_to() -> None:
    """A block mask with the window; a dict of masks where layers differ, as in
    gpt-oss.
    """
    at = torch.arange(TOKENS)
    block = ((at >= SECOND_BEGIN)[:, None] == (at >= SECOND_BEGIN)) & (
        at <= at[:, None]
    )
    window = block & (at[:, None] - at < 24)
    full, sliding = (
        torch.zeros(1, 1, *m.shape).masked_fill(~m, -1e38) for m in (block, window)
    )
    tokens = torch.randint(
        4, 97, (1, TOKENS), generator=torch.Generator().manual_seed(0)
    )
    positions = torch.cat([at[:SECOND_BEGIN], at[: TOKENS - SECOND_BEGIN]])[None]
    for name, mask in (
        ("mistral", sliding),
        ("gpt_oss", {"full_attention": full, "sliding_attention": sliding}),
        ("gemma3_text", {"full_attention": full, "sliding_attention": sliding}),
    ):
        model = untouched(*MODELS[name][:1], **MODELS[name][1])
        read = model(
            input_ids=tokens, position_ids=positions, attention_mask=mask
        ).logits
        parts = [
            model(input_ids=part).logits
            for part in tokens.split([SECOND_BEGIN, TOKENS - SECOND_BEGIN], 1)
        ]
        assert apart(read, torch.cat(parts, dim=1)) < 1e-4, name


@pytest.mark.slow
def test_scaling_that_follows_the_length_breaks_a_cache_from_the_trained_length_on() -> (
    None
):
    for name in ("llama, dynamic", "phi3, longrope"):
        laws = {row["law"]: row for row in diagnosed(name).rows["laws"]}
        assert (laws["cache"]["verdict"], laws["cache"]["position"]) == ("broken", 64)


@pytest.mark.slow
def test_norms_after_the_rotation_break_shifts_by_their_weights_alone() -> None:
    equal = untouched("hunyuan_v1_dense")
    assert not doctor(equal).broken
    for layer in equal.model.layers:
        layer.self_attn.key_layernorm.weight.data[0] = 2.0
    assert {
        row["law"] for row in doctor(equal).rows["laws"] if row["verdict"] == "broken"
    } >= {
        "shift",
        "rotation",
    }


@pytest.mark.slow
def test_recurrent_gemma_keeps_its_laws_where_the_document_sends_it() -> None:
    """Right padding, one pass and then single tokens hold."""
    trials = {
        (t["law"], t["trial"]): t for t in diagnosed("recurrent_gemma").rows["trials"]
    }
    for trial in (("padding", "right, mask alone"), ("cache", "token by token")):
        assert trials[trial]["verdict"] == "holds"
