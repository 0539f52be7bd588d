"""Claims of the comparison tables: parameters, storage, caches, biases."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from ropelab.encoding.base import Encoding
from ropelab.encoding.registry import make_encoding
from ropelab.encoding.shape import Shape
from ropelab.experiments.claims.randoms import gaussian, largest
from ropelab.experiments.claims.record import Claim, Evidence, Finding, limit, part, tiny

MORE = "ropelab encodings"
Growth = Literal["none", "some", "with length"]


@dataclass(frozen=True, kw_only=True)
class Small:
    """A small model and the lengths at which encodings are compared."""

    length: int = 512
    layers: int = 4
    heads: int = 4
    head_dim: int = 32
    seed: int = 0

    def encoding(self, name: str, length: int | None = None) -> Encoding:
        """The encoding of that name for models of that trained length."""
        shape = Shape(
            layers=self.layers,
            width=self.heads * self.head_dim,
            heads=self.heads,
            head_dim=self.head_dim,
            trained_len=length or self.length,
        )
        return make_encoding(name, shape, self.seed)

    def parameters(self, name: str) -> tuple[int, int]:
        """How many numbers it trains, for the length and for twice the length."""
        first, second = (
            sum(p.numel() for p in self.encoding(name, length).parameters())
            for length in (self.length, 2 * self.length)
        )
        return first, second

    def queries_and_keys(self, tokens: int) -> tuple[Tensor, Tensor]:
        """Random queries and keys of one layer, float32."""
        q, k = gaussian(self.seed, 2, 1, self.heads, tokens, self.head_dim).float()
        return q, k


@dataclass(frozen=True, kw_only=True)
class ParameterColumn(Small):
    """What the parameter column of a table says of some encodings."""

    said: tuple[tuple[str, Growth], ...] = (
        ("sinusoidal", "none"),
        ("learned", "with length"),
        ("shaw", "some"),
        ("rope", "none"),
    )


def parameter_column(given: ParameterColumn) -> Evidence:
    """Count the trained numbers of each encoding at one length and at twice that length."""
    findings = [_counted(name, said, *given.parameters(name)) for name, said in given.said]
    return Evidence(
        expected=", ".join(f"{name} {said}" for name, said in given.said), findings=tuple(findings)
    )


def _counted(name: str, said: Growth, short: int, long: int) -> Finding:
    found = {"none": short == long == 0, "some": short > 0, "with length": long == 2 * short > 0}
    return part(f"{name}, said to train: {said}; trains", f"{short:,}", found[said], short)


def always_fixed(given: Small) -> Evidence:
    """Count what the two absolute encodings train."""
    fixed, trained = (given.parameters(name)[0] for name in ("sinusoidal", "learned"))
    return Evidence(
        expected="nothing is trained",
        findings=(
            part("trained numbers of the sinusoidal encoding", f"{fixed:,}", fixed == 0, fixed),
            limit("of a learned table", f"{trained:,}", trained == 0, trained),
        ),
    )


def learned_stops(given: Small) -> Evidence:
    """Ask a learned table for the first position after the trained ones."""
    encoding = given.encoding("learned")
    try:
        encoding.embed(
            torch.zeros(1, 1, given.heads * given.head_dim), torch.tensor([given.length])
        )
        outcome = "a vector"
    except IndexError:
        outcome = "no vector"
    last = encoding.max_position
    return Evidence(
        expected="nothing beyond the trained length",
        findings=(
            part(
                f"at position {given.length} a learned table has", outcome, outcome == "no vector"
            ),
            part("its last position", f"{last}", last == given.length - 1),
        ),
    )


@dataclass(frozen=True, kw_only=True)
class Space(Small):
    """An encoding whose storage a table describes."""

    name: str = "t5"


def bias_matrix(given: Space) -> Evidence:
    """Count the numbers that a bias adds to the scores, and how many of them differ."""
    grown = {}
    for tokens in (given.length, 2 * given.length):
        nothing = torch.zeros(1, given.heads, tokens, given.head_dim)
        positions = torch.arange(tokens)
        biases = given.encoding(given.name).scores(nothing, nothing, positions, positions)[0, 0]
        seen = biases[torch.ones_like(biases).tril() > 0]
        grown[tokens] = (biases.numel(), len(seen.unique()))
    (full, distinct), (full_2, distinct_2) = grown[given.length], grown[2 * given.length]
    return Evidence(
        expected="four times as many numbers for twice the tokens",
        findings=(
            part(
                f"scores that get a bias, {given.length} and {2 * given.length} tokens",
                f"{full:,} and {full_2:,} per head",
                full_2 == 4 * full,
                full_2 / full,
            ),
            limit(
                "different biases among them",
                f"{distinct} and {distinct_2}",
                distinct_2 >= 4 * distinct,
                distinct,
            ),
        ),
    )


def rope_space(given: Small) -> Evidence:
    """Count what RoPE trains, and the cosines and sines that the printed code keeps."""
    trained = given.parameters("rope")
    tables = [2 * tokens * given.head_dim for tokens in (given.length, 2 * given.length)]
    return Evidence(
        expected="the same for twice the tokens",
        findings=(
            part(
                "trained numbers at one length and at twice it",
                f"{trained[0]} and {trained[1]}",
                trained[0] == trained[1],
            ),
            limit(
                f"table entries that the printed code keeps for {given.length} and "
                f"{2 * given.length} tokens",
                f"{tables[0]:,} and {tables[1]:,}",
                tables[0] == tables[1],
                tables[1] / tables[0],
            ),
        ),
    )


@dataclass(frozen=True, kw_only=True)
class Cached(Small):
    """An encoding that is said to be slow and to rule out a key-value cache."""

    name: str = "transformer_xl"
    tokens: int = 64


def cache_is_impossible(given: Cached) -> Evidence:
    """Decode token by token from cached keys and compare with the scores of the full pass."""
    encoding = given.encoding(given.name).for_layer(0)
    with torch.no_grad():
        q, k = given.queries_and_keys(given.tokens)
        full = encoding.scores(*_encoded(encoding, q, k))
        keys = torch.cat(
            [encoding.key(k[:, :, i : i + 1], torch.tensor([i])) for i in range(given.tokens)], -2
        )
        apart = max(
            largest(_decoded(encoding, q, keys, i) - full[:, :, i : i + 1, : i + 1])
            for i in range(given.tokens)
        )
        ratio = _multiplications(given, encoding) / _multiplications(given, Encoding())
    return Evidence(
        expected="decoding from cached keys gives other scores, and scores cost more",
        findings=(
            part(
                f"scores from cached keys against the full pass, {given.tokens} tokens",
                f"{tiny(apart)} apart",
                apart > 1e-3,
                apart,
            ),
            part(
                "multiplications of the scores, plain attention is 1",
                f"{ratio:.1f}",
                ratio > 1,
                ratio,
            ),
        ),
    )


def _encoded(encoding: Encoding, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What `scores` takes for a whole sequence."""
    positions = torch.arange(q.shape[-2])
    return encoding.query(q, positions), encoding.key(k, positions), positions, positions


def _multiplications(given: Small, encoding: Encoding) -> int:
    """Multiplications for the scores of a sequence of the trained length."""
    encoded = _encoded(encoding, *given.queries_and_keys(given.length))
    with FlopCounterMode(display=False) as counter:
        encoding.scores(*encoded)
    return counter.get_total_flops()


def _decoded(encoding: Encoding, q: Tensor, keys: Tensor, token: int) -> Tensor:
    """Scores of one query with cached keys, each encoded alone when its token came."""
    here = torch.tensor([token])
    query = encoding.query(q[:, :, token : token + 1], here)
    return encoding.scores(query, keys[:, :, : token + 1], here, torch.arange(token + 1))


def query_bias_matters(given: Small) -> Evidence:
    """Add a bias per query, and a bias per distance, to the scores and compare the weights."""
    q, k = given.queries_and_keys(16)
    scores = q @ k.mT
    per_query = gaussian(given.seed + 1, 16, 1).float()
    per_distance = 0.1 * (torch.arange(16)[:, None] - torch.arange(16))
    changes = [
        largest((scores + bias).softmax(-1) - scores.softmax(-1))
        for bias in (per_query, per_distance)
    ]
    return Evidence(
        expected="both change the attention weights",
        findings=(
            part("change by c_(q-k)", f"{changes[1]:.2f}", changes[1] > 1e-3, changes[1]),
            part("change by b_q", tiny(changes[0]), changes[0] > 1e-3, changes[0]),
        ),
    )


@dataclass(frozen=True, kw_only=True)
class RelativeTable:
    """A longest text, and the rows that its table of relative positions is said to need."""

    length: int = 512
    rows: int = 1024


def rows_of_relative_table(given: RelativeTable) -> Evidence:
    """Count the differences q - k between positions of the text."""
    positions = torch.arange(given.length)
    differences = (positions[:, None] - positions).unique()
    farthest = int(differences.max())
    return Evidence(
        expected=f"{given.rows} rows",
        findings=(
            part(
                f"different distances in {given.length} tokens",
                f"{len(differences)}, from -{farthest} to {farthest}",
                len(differences) == given.rows,
                len(differences),
            ),
        ),
    )


CLAIMS = (
    Claim(
        id="parameter-column",
        source="note 003 (comparison)",
        statement="Sinusoidal and RoPE add no parameters, a learned table grows with the length, "
        "a relative encoding needs some.",
        inputs=ParameterColumn(),
        check=parameter_column,
        command=MORE,
    ),
    Claim(
        id="alibi-trainable",
        source="note 003 (ALiBi, comparison)",
        statement="ALiBi has a few trainable parameters, its slopes.",
        inputs=ParameterColumn(said=(("alibi", "some"),)),
        check=parameter_column,
        command=MORE,
    ),
    Claim(
        id="absolute-fixed",
        source="note 002 §1",
        statement="An absolute position encoding adds a fixed vector that is not trained.",
        inputs=Small(),
        check=always_fixed,
    ),
    Claim(
        id="learned-stops",
        source="note 001 §3.1; note 003 (comparison)",
        statement="A learned absolute encoding cannot go beyond the trained length.",
        inputs=Small(),
        check=learned_stops,
        command=MORE,
    ),
    Claim(
        id="relative-space",
        source="note 001 §3.2",
        statement="T5's relative encoding needs an additional bias matrix of O(L^2) numbers.",
        inputs=Space(),
        check=bias_matrix,
    ),
    Claim(
        id="rope-space",
        source="note 001 §3.3",
        statement="RoPE needs O(1) additional space.",
        inputs=Small(),
        check=rope_space,
    ),
    Claim(
        id="relative-table",
        source="note 003 (relative encodings, §6)",
        statement="For texts of up to 512 tokens relative positions reach from -512 to 512, and "
        "their table needs 1024 rows.",
        inputs=RelativeTable(),
        check=rows_of_relative_table,
    ),
    Claim(
        id="transformer-xl-cache",
        source="note 003 (Transformer-XL)",
        statement="Transformer-XL's relative encoding is slow and cannot use a KV cache.",
        inputs=Cached(),
        check=cache_is_impossible,
        command=MORE,
    ),
    Claim(
        id="query-bias",
        source="note 003 (relative encodings, §7)",
        statement="Position enters the scores through two biases, b_q of the query and c_(q-k) of "
        "the distance.",
        inputs=Small(),
        check=query_bias_matters,
    ),
)
