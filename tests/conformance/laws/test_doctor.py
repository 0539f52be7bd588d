"""The command and the function: verdicts, status, what is refused."""

import json
import resource
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

import ropelab
from ropelab.cli.app import main
from ropelab.conformance.laws.doctor import LAWS, measure_peak
from ropelab.conformance.laws.law import KNOWN_VIOLATIONS, explain_violation
from ropelab.runs.errors import InputError
from ropelab.testing import assert_positions
from tests.models.released.tiny import saved, untouched
from tests.texts import mentions


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    """Status and standard output of the command."""
    with pytest.raises(SystemExit) as end:
        main(["doctor", *map(str, arguments)])
    return int(end.value.code or 0), capsys.readouterr().out


def verdicts(done: Any) -> dict[str, str]:
    table = done.tables["laws"]
    return dict(zip(table.law, table.verdict, strict=True))


def test_a_llama_keeps_every_law_that_it_can_be_asked(tmp_path, capsys):
    status, said = run(capsys, saved(tmp_path, "llama"))
    assert status == 0
    kept = f"{tmp_path.name} keeps all laws that it can be asked, 8 of 9 ("
    assert said.replace("\n", " ").startswith(kept)
    assert [line.split()[0] for line in said.splitlines()[3:12]] == [
        law.name for law in LAWS
    ]
    assert mentions(said, "2 of 2 layers", "base 10000", "16 features", "half")


def test_a_falcon_that_leaks_between_packed_texts_ends_with_status_3(tmp_path, capsys):
    status, said = run(capsys, saved(tmp_path, "falcon", head_dim=None), "--json")
    assert status == 3
    document = json.loads(said)
    broken = [row for row in document["tables"]["trials"] if row["verdict"] == "broken"]
    assert [(row["law"], row["trial"], row["position"]) for row in broken] == [
        ("packing", "restarted, no mask", 17)
    ]
    assert broken[0]["kind"] == "defect"
    assert document["cpu_s"] > 0


@pytest.mark.slow
def test_a_configuration_alone_gets_weights_that_do_not_change_from_run_to_run(
    tmp_path,
):
    saved(tmp_path / "whole", "llama", max_position_embeddings=4096)
    (tmp_path / "config.json").write_bytes(
        (tmp_path / "whole" / "config.json").read_bytes()
    )
    first, second = (ropelab.doctor(str(tmp_path)) for _ in range(2))
    assert "random weights" in first.answer
    assert not first.broken
    # What rounding leaves depends on where memory lies; what leaks does not.
    one, other = (
        each.tables["trials"].query("trial == 'neither'")["size"]
        for each in (first, second)
    )
    assert float(one.iloc[0]) == pytest.approx(float(other.iloc[0]), rel=1e-4)


@pytest.mark.slow
def test_a_large_configuration_is_made_smaller(tmp_path):
    saved(tmp_path / "whole", "mistral", sliding_window=4096)
    config = json.loads((tmp_path / "whole" / "config.json").read_text())
    config |= {"hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8}
    config |= {"num_hidden_layers": 32, "vocab_size": 32000, "head_dim": 128}
    (tmp_path / "config.json").write_text(
        json.dumps(config | {"intermediate_size": 14336})
    )
    done = ropelab.doctor(str(tmp_path))
    assert "sizes reduced" in done.answer
    assert list(done.tables["layers"].rotary_dim) == [128] * 8
    assert verdicts(done)["rotation"] == "holds"


class Own(nn.Module):
    """Attention over rotated embeddings, written down plainly: one layer, one head."""

    vocabulary = 50

    def __init__(self, absolute: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(50, 16)
        self.maps = nn.ModuleList(nn.Linear(16, 16) for _ in range(3))
        self.head, self.absolute = nn.Linear(16, 50), absolute

    def rotated(self, x: Tensor, positions: Tensor) -> Tensor:
        pairs = torch.arange(8, dtype=torch.float32)
        angle = positions[..., None].float() * 100.0 ** (-pairs / 8)
        first, second = x[..., :8], x[..., 8:]
        cos, sin = angle.cos(), angle.sin()
        return torch.cat(
            [first * cos - second * sin, second * cos + first * sin], dim=-1
        )

    def forward(self, tokens: Tensor, positions: Tensor, mask: Tensor) -> Tensor:
        x = self.embedding(tokens)
        if self.absolute:
            x = x + 0.1 * positions[..., None].float().sin()
        q, k, v = (each(x) for each in self.maps)
        scores = self.rotated(q, positions) @ self.rotated(k, positions).mT
        return self.head(x + scores.masked_fill(~mask, -torch.inf).softmax(dim=-1) @ v)


class Clamped(Own):
    """Compiled, its positions end at 30."""

    def rotated(self, x: Tensor, positions: Tensor) -> Tensor:
        ended = positions.clamp(max=30) if torch.compiler.is_compiling() else positions
        return super().rotated(x, ended)


# of torch, as its compiler is imported
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.slow
@pytest.mark.parametrize(("code", "verdict"), [(Own, "holds"), (Clamped, "broken")])
def test_code_is_asked_compiled_too(code, verdict, monkeypatch):
    # Two kernels are compiled; processes for many of them would each import torch.
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "1")
    trials = ropelab.doctor(code(), compiled=True).tables["trials"]
    (row,) = trials[trials["trial"] == "torch.compile"].to_dict("records")
    assert row["verdict"] == verdict
    assert verdict == "holds" or row["position"] == 31


def test_own_code_is_asked_what_it_can_be(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(
        "from tests.conformance.laws.test_doctor import Own as make\n"
    )
    monkeypatch.chdir(tmp_path)
    done = ropelab.doctor("mine:make")
    assert not done.broken
    asked = {
        law for law, verdict in verdicts(done).items() if verdict != "cannot be asked"
    }
    assert asked == {"shift", "padding", "packing", "state"}


class Buffered(Own):
    """Every answer of a size is in the same memory, as in a captured graph."""

    answers: ClassVar[dict[object, Tensor]] = {}

    def forward(self, tokens: Tensor, positions: Tensor, mask: Tensor) -> Tensor:
        logits = super().forward(tokens, positions, mask)
        return self.answers.setdefault((logits.shape, logits.dtype), logits).copy_(
            logits
        )


@pytest.mark.parametrize("code", [Own, Buffered])
def test_an_absolute_encoding_is_told_so(code):
    done = ropelab.doctor(code(absolute=True))
    assert verdicts(done)["shift"] == "broken"
    trials = done.tables["trials"]
    assert set(trials[trials.law == "shift"].says) == {"the absolute position enters"}


def test_a_broken_law_of_own_code_is_told_what_it_means_and_what_to_do(
    tmp_path, monkeypatch, capsys
):
    (tmp_path / "deaf.py").write_text(
        "from tests.conformance.laws.test_doctor import Own\nclass Deaf(Own):\n    def"
        " forward(self, tokens, positions, mask):\n        print('noise')\n       "
        " return super().forward(tokens, positions, mask.any(0,"
        " keepdim=True).tril())\nmake = Deaf\n"
    )
    monkeypatch.chdir(tmp_path)
    trials = ropelab.doctor("deaf:make").tables["trials"]
    broken = trials[trials.verdict == "broken"]
    assert len(broken) > 0
    assert all(broken.says)
    assert all(broken.fix)
    capsys.readouterr()
    status, said = run(capsys, "deaf:make", "--json")
    assert status == 3
    assert json.loads(said)["broken"]
    status, said = run(capsys, "deaf:make")
    assert mentions(said, "fix:", "mask", "positions of each row")
    assert said.count("no configuration") == 1


class Dropped(Own):
    """Right code with dropout, as a factory leaves it: in training."""

    def forward(self, tokens: Tensor, positions: Tensor, mask: Tensor) -> Tensor:
        return nn.functional.dropout(
            super().forward(tokens, positions, mask), 0.1, self.training
        )


def test_dropout_is_left_out_and_put_back():
    model = Dropped()
    assert_positions(model)
    assert model.training


class Counted(Own):
    """Positions of its own, whatever it is given."""

    def forward(self, tokens: Tensor, positions: Tensor, mask: Tensor) -> Tensor:
        return super().forward(tokens, torch.arange(tokens.shape[1]), mask)


def test_code_that_ignores_positions_cannot_be_asked_for_shifts():
    done = ropelab.doctor(Counted())
    assert verdicts(done)["shift"] == "cannot be asked"
    trials = done.tables["trials"]
    said = "its logits do not depend on the positions that are given"
    assert set(trials[trials.law == "shift"].says) == {said}


def raising(tokens: Tensor, positions: Tensor, mask: Tensor) -> Tensor:
    raise OSError("no disk")


def same(tokens: Tensor, positions: Tensor, mask: Tensor) -> Tensor:
    return torch.arange(10.0).expand(*tokens.shape, 10)


def different(tokens: Tensor, positions: Tensor, mask: Tensor) -> Tensor:
    return torch.rand(*tokens.shape, 10)


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (raising, "raising cannot read 48 tokens with ids below 64: OSError: no disk"),
        (same, "same: every token has the same logits"),
        (different, "different: the same tokens have other logits the second time"),
    ],
)
def test_code_that_no_law_can_be_asked_of_keeps_none(model, said):
    with pytest.raises(InputError, match=said):
        assert_positions(model)


@pytest.mark.skipif(torch.cuda.is_available(), reason="has a GPU")
def test_a_gpu_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(InputError, match="--device cuda: this machine has none"):
        ropelab.doctor(str(saved(tmp_path, "llama")), device="cuda")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["mixtral", "phi3", "starcoder2"])
def test_a_window_that_a_mask_replaces_is_explained_in_any_architecture(kind):
    trials = ropelab.doctor(untouched(kind, sliding_window=24)).tables["trials"]
    broken = trials[trials.verdict == "broken"]
    assert list(zip(broken.law, broken.trial, broken.kind, strict=True)) == [
        ("packing", "restarted, mask", "design")
    ]


def test_every_law_that_can_be_broken_has_words_and_every_word_a_law():
    asked = {
        (law.name, trial.name) for law in LAWS for trial in law.trials if not trial.cost
    }
    asked.add(("state", "torch.compile"))
    silent = {each for each in asked if not explain_violation(*each)}
    assert silent == {("state", ".to(bfloat16)")}
    for row in KNOWN_VIOLATIONS:
        for law in row["laws"]:
            names = {trial for name, trial in asked if name == law}
            assert names >= set(row.get("trials", [])) and names, row


@pytest.mark.parametrize("option", ["dtype", "device"])
def test_options_of_a_folder_are_refused_for_code_that_has_its_own(
    option, tmp_path, monkeypatch
):
    (tmp_path / "formats.py").write_text(
        "from tests.conformance.laws.test_doctor import Own as make\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    value = {"dtype": "float16", "device": "cuda"}[option]
    for model in ("formats:make", Own()):
        with pytest.raises(InputError, match=f"--{option} is for a model's folder"):
            ropelab.doctor(model, **{option: value})


def test_a_vocabulary_of_one_is_refused():
    model = Own()
    model.vocabulary = 1
    with pytest.raises(InputError, match="vocabulary of 1"):
        ropelab.doctor(model)


def test_rounding_of_frequencies_is_not_called_rounding_of_logits(tmp_path):
    done = ropelab.doctor(str(saved(tmp_path, "llama", num_hidden_layers=0)))
    assert verdicts(done)["state"] == "rounding only"
    assert "spread of logits" not in done.answer


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "sizes"),
    [
        ("gpt2", {"n_embd": 32, "n_layer": 2, "n_head": 2}),
        ("bloom", {"n_layer": 2, "n_head": 2}),
    ],
)
def test_a_model_without_rope_is_not_told_that_its_layers_should_rotate(kind, sizes):
    done = ropelab.doctor(
        untouched(kind, **sizes, head_dim=None, num_key_value_heads=None)
    )
    assert verdicts(done)["rotation"] == "cannot be asked"
    assert verdicts(done)["shift"] == (
        "broken" if kind == "gpt2" else "cannot be asked"
    )


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("nowhere", "no readable"),
        ("no_such_module:make", "gives no model: ModuleNotFoundError"),
        ("json:dumps", "gives no model: TypeError"),
        ("builtins:dict", "gives no model: TypeError: a dict, which cannot be called"),
    ],
)
def test_what_is_no_model_is_refused(model, said):
    with pytest.raises(InputError, match=said):
        ropelab.doctor(model)


def test_a_model_that_does_not_fit_in_float64_is_refused(tmp_path, monkeypatch):
    # Of the machine and of its container.
    monkeypatch.setattr("ropelab.conformance.laws.model.find_free_memory", lambda: 1000)
    with pytest.raises(InputError, match="for its weights in float64"):
        ropelab.doctor(str(saved(tmp_path, "llama")))


def test_buffers_of_own_code_in_a_smaller_format_stay_as_they_were():
    model = Own().bfloat16()
    model.register_buffer("table", torch.tensor([1 / 3]))
    ropelab.doctor(model)
    table = model.get_buffer("table")
    assert table.dtype == torch.float32
    assert table.item() == torch.tensor(1 / 3).item()
    assert model.head.weight.dtype == torch.bfloat16


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_model_that_others_use_stays_as_it_was(dtype):
    model = untouched("llama").to(dtype)
    # As some libraries keep it.
    model.lm_head.float()
    model.get_input_embeddings().weight.requires_grad_(True)
    tokens = torch.arange(4)[None]
    if dtype == torch.float32:
        model(tokens).logits.sum().backward()
    for parameter in model.parameters():
        # The last bits of float64 are lost in float32.
        parameter.data = parameter.data * (1 + 1e-12)

    def describe() -> list[Any]:
        rows: list[Any] = [model.config.to_dict(), model.generation_config.to_dict()]
        for parameter in model.parameters():
            rows.append((parameter.data_ptr(), parameter.dtype, parameter.tolist()))
            gradient = parameter.grad
            rows.append(None if gradient is None else gradient.tolist())
        return rows

    before = describe()
    ropelab.doctor(model)
    assert describe() == before


@pytest.mark.slow
def test_the_kernel_that_a_model_was_built_with_is_no_broken_law():
    # Its config.json does not name it, so that another one is chosen on loading.
    model = untouched("llama")
    model.set_attn_implementation("eager")
    found = ropelab.doctor(model).tables["trials"].set_index("trial")
    assert found.verdict["saved and loaded"] == "holds"


@pytest.mark.slow
def test_laws_are_asked_without_autocast():
    model = untouched("llama")
    with torch.autocast("cpu", torch.bfloat16):
        assert not ropelab.doctor(model).broken
        assert torch.is_autocast_enabled("cpu")


@pytest.mark.slow
def test_a_model_that_cannot_be_saved_is_asked_all_else(monkeypatch):
    def refused(*_: Any, **__: Any) -> None:
        raise RuntimeError("no room")

    model = untouched("llama")
    monkeypatch.setattr(model, "save_pretrained", refused)
    trials = ropelab.doctor(model).tables["trials"].set_index("trial")
    assert trials.verdict["saved and loaded"] == "cannot be asked"
    assert mentions(trials.says["saved and loaded"], "cannot save", "no room")
    assert trials.verdict["by 1"].iloc[0] == "holds"


def test_the_most_memory_is_in_bytes_everywhere(monkeypatch):
    monkeypatch.setattr(resource, "getrusage", lambda _: SimpleNamespace(ru_maxrss=3))
    found = []
    for platform in ("linux", "darwin"):
        monkeypatch.setattr("ropelab.conformance.laws.doctor.sys.platform", platform)
        found.append(measure_peak())
    assert found == [3072, 3]


class Narrow(Own):
    """Code that knows no float64."""

    def forward(self, tokens: Tensor, positions: Tensor, mask: Tensor) -> Tensor:
        if self.head.weight.dtype == torch.float64:
            raise RuntimeError("no kernel")
        return super().forward(tokens, positions, mask)


@pytest.mark.parametrize("absolute", [False, True])
def test_code_without_float64_is_judged_by_float32(absolute):
    verdict = verdicts(ropelab.doctor(Narrow(absolute)))["shift"]
    assert verdict == "broken" if absolute else verdict in ("holds", "rounding only")


class Unlimited(Own):
    """Logits that are no numbers."""

    def forward(self, tokens: Tensor, positions: Tensor, mask: Tensor) -> Tensor:
        return super().forward(tokens, positions, mask) / 0 * 0


def test_logits_that_are_no_numbers_are_broken_and_have_no_size(
    tmp_path, monkeypatch, capsys
):
    (tmp_path / "odd.py").write_text(
        "from tests.conformance.laws.test_doctor import Unlimited as make\n"
    )
    monkeypatch.chdir(tmp_path)
    status, said = run(capsys, "odd:make", "--json")
    first = json.loads(said)["tables"]["trials"][0]
    assert (status, first["size"]) == (3, None)
    assert mentions(first["says"], "no numbers")


def test_logits_of_the_last_token_alone_are_refused(monkeypatch) -> None:
    model = untouched("llama")
    forward = model.forward

    def shorten(*arguments: Any, **named: Any) -> Any:
        answer = forward(*arguments, **named)
        answer.logits = answer.logits[:, -1:]
        return answer

    monkeypatch.setattr(model, "forward", shorten)
    with pytest.raises(InputError, match="one row of logits per token"):
        ropelab.doctor(model)


@pytest.mark.parametrize("end", ["os._exit(0)", "sys.exit(0)"])
def test_a_model_that_ends_the_process_is_one_line(
    tmp_path, monkeypatch, capsys, end: str
) -> None:
    (tmp_path / "ends.py").write_text(f"""
import os, sys
from torch import nn
class Make(nn.Module):
    def forward(self, tokens, positions, mask):
        {end}
""")
    monkeypatch.delitem(sys.modules, "ends", raising=False)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(["doctor", "ends:Make"])
    out, err = capsys.readouterr()
    assert (ended.value.code, out) == (2, "")
    assert "ends.py, line 6" in err


def test_unknown_formats_are_refused(capsys, tmp_path):
    assert run(capsys, tmp_path, "--dtype", "float8")[0] == 2
    assert not list(Path(tmp_path).iterdir())


def test_a_test_of_another_project_asserts_them():
    assert_positions(Own())
    with pytest.raises(
        AssertionError, match="shift, by 1: the absolute position enters"
    ):
        assert_positions(Own(absolute=True))
    assert_positions(Own(absolute=True), allowed=("shift", "padding", "packing"))


def test_a_model_that_ends_the_process_fails_the_assertion():
    def model(ids, positions, mask):
        raise SystemExit(0)

    with pytest.raises(AssertionError, match=r"^model raised SystemExit: 0$"):
        assert_positions(model)
