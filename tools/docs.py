"""README.md, docs/commands.md, docs/findings.md and what `emit` and `base` quote of
them: templates in docs/templates, numbers from committed tables.

    python tools/docs.py            name the files that differ from what the tables say
    python tools/docs.py --write    write them (`make docs`)

A template is Markdown with Jinja expressions; this file has the functions that they
call. A number that is a result is never typed: `tests/test_docs.py` looks for digits in
the templates.
"""

import json
import math
import re
import sys
from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path
from textwrap import TextWrapper

import jinja2
import pandas as pd

from ropelab.models.tasks.tables import average_with_intervals
from ropelab.readers.registry import RUNTIMES
from ropelab.runs.labels import label_method, label_rows
from ropelab.runs.sentences import write_with_interval
from ropelab.runs.stats import average_samples
from ropelab.show.gallery import write_anchor

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "results" / "reference"
TEMPLATES = ROOT / "docs" / "templates"
TARGETS = {
    "README.md": "README.md",
    "commands.md": "docs/commands.md",
    "findings.md": "docs/findings.md",
    "observed.toml": "ropelab/cli/observed.toml",
}
LOSS = "nll_nats_per_byte"
# A space at which lines are not broken.
NO_BREAK = "\N{NO-BREAK SPACE}"


class Run:
    """A committed run, by the name of its config: its tables, as attributes of `t`."""

    def __init__(self, experiment: str, name: str) -> None:
        exact = REFERENCE / experiment / name
        folders = (
            [exact]
            if exact.is_dir()
            else (REFERENCE / experiment).glob(f"{name}-????????")
        )
        self.folder = only(folders)

    @cached_property
    def config(self) -> dict:
        """The resolved config."""
        return json.loads((self.folder / "manifest.json").read_text())["config"]

    @property
    def seeds(self) -> int:
        """The number of training seeds."""
        return len(self.config["seeds"])

    @cache  # noqa: B019 (runs live as long as the program)
    def table(self, name: str) -> pd.DataFrame:
        """A table; where rows are methods, with their labels (without their arm)."""
        found = pd.read_csv(self.folder / "tables" / f"{name}.csv")
        if {"method", "factor", "arm"} <= set(found.columns):
            pairs = zip(found["method"], found["factor"], strict=True)
            found["label"] = [label_method(*pair) for pair in pairs]
            found["row"] = label_rows(found)
        return found

    def rows(self, name: str, /, **equal: object) -> pd.DataFrame:
        """The rows of a table in which columns have these values."""
        found = self.table(name)
        for column, value in equal.items():
            found = found[found[column] == value]
        if found.empty:
            raise LookupError(f"{self.folder.name}: {name} has no row with {equal}")
        return found

    def value(self, name: str, column: str, /, **equal: object) -> float:
        """The mean of a column over rows: over seeds, where there are several."""
        return float(self.rows(name, **equal)[column].mean())

    @property
    def section(self) -> str:
        """The anchor of the run's section in the gallery, results/reference/README.md."""
        return write_anchor(f"{self.folder.parent.name} {self.folder.name}")

    def figure(self, name: str, depth: int = 2) -> str:
        """The path of a figure from a file that many folders below the root."""
        folder = self.folder.relative_to(ROOT).as_posix()
        return f"{'../' * (depth - 1)}{folder}/figures/{name}.png"

    # For `extrapolate`: rows are methods; lengths in trained lengths L.

    @property
    def trained(self) -> int:
        """L."""
        return int(self.config["train_len"])

    @property
    def tested(self) -> int:
        """The longest context."""
        return int(self.config["test_len"])

    def labels(self, arm: str = "zero_shot") -> list[str]:
        """The methods, in their order."""
        return list(dict.fromkeys(self.rows("text_nll", arm=arm)["label"]))

    def scalings(self) -> pd.DataFrame:
        """A row per scaling of the models as trained: method, factor and label."""
        rows = self.rows("text_nll", arm="zero_shot")
        rows = rows[["method", "factor", "label"]].drop_duplicates()
        return rows[~rows["method"].isin(["unscaled", "sliding_window"])]

    def recall(
        self,
        label: str,
        back: float,
        context: float,
        arm: str = "zero_shot",
        task: str = "copy",
    ) -> float:
        """The accuracy of a task at a distance in a context; nan where it was not
        measured.
        """
        found = self._recalls(label, back, context, arm, task)
        return float(found["accuracy"].mean())

    def recall_interval(self, label: str, back: float, context: float) -> str:
        """The recall of symbols in percent with its interval over models, as the
        terminal writes it: `96% [93%, 98%]`.
        """
        rows = self._recalls(label, back, context)
        means = average_with_intervals(rows, "accuracy", "recall")
        value, low, high = means.to_numpy(dtype=float)[0]
        return write_with_interval(value, low, high, "%")

    def _recalls(
        self,
        label: str,
        back: float,
        context: float,
        arm: str = "zero_shot",
        task: str = "copy",
    ) -> pd.DataFrame:
        """A row per seed with the accuracy of a task at a distance in a context."""
        at = {
            "distance_tokens": back * self.trained,
            "context_tokens": context * self.trained,
        }
        found = self.rows(f"{task}_accuracy", arm=arm, **at)
        return found[found["label"] == label]

    def text(self, label: str, end: float, arm: str = "zero_shot") -> float:
        """Nats per byte in the bucket of text that ends there; nan where it was not
        measured.
        """
        found = self.rows("text_nll", arm=arm, bucket_end_tokens=end * self.trained)
        return float(found[found["label"] == label][LOSS].mean())

    def gap(self, a: str, b: str, at: float, metric: str = "nll_bucket") -> str:
        """The difference a - b of two rows there, with its interval: `0.073 [0.042,
        0.105]`.
        """
        return interval(self.gap_ends(a, b, at, metric))

    def gap_ends(
        self, a: str, b: str, at: float, metric: str = "nll_bucket"
    ) -> list[float]:
        """The difference a - b of two rows there, and the ends of its interval."""
        row = self._compared(a, b, at, metric)
        ends = [row["difference"], row["ci_low"], row["ci_high"]]
        if row["method_a"] != a:
            ends = [-ends[0], -ends[2], -ends[1]]
        return ends

    def verdict(self, a: str, b: str, at: float, metric: str = "nll_bucket") -> str:
        """The better of two rows there, or `~`."""
        return str(self._compared(a, b, at, metric)["verdict"])

    def _compared(self, a: str, b: str, at: float, metric: str) -> pd.Series:
        rows = self.rows("comparisons", metric=metric, at_tokens=at * self.trained)
        rows = rows[rows["context_tokens"] == rows["context_tokens"].max()]
        return rows[rows["method_a"].isin([a, b]) & rows["method_b"].isin([a, b])].iloc[
            0
        ]

    def best(self, back: float) -> str:
        """The row that recalls most at a distance in the longest context."""
        at = {"distance_tokens": back * self.trained, "context_tokens": self.tested}
        rows = self.rows("copy_accuracy", arm="zero_shot", **at)
        return str(rows.groupby("label")["accuracy"].mean().idxmax())

    def rivals(self, back: float) -> list[str]:
        """The rows that are not significantly different from the best one there."""
        best, at = self.best(back), back * self.trained
        rows = self.rows(
            "comparisons", metric="copy_accuracy", at_tokens=at, verdict="~"
        )
        rows = rows[rows["context_tokens"] == self.tested]
        pairs = rows[["method_a", "method_b"]].itertuples(index=False)
        return [b if a == best else a for a, b in pairs if best in (a, b)]

    def methods(
        self,
        recalls: Sequence[tuple[float, float]],
        texts: Sequence[float],
        arms: Sequence[str] = ("zero_shot",),
    ) -> str:
        """A row per method: recall by distance and context, text by the end of the
        bucket.
        """
        lines = []
        for label in self.labels(arms[-1]):
            cells = [f2(self.recall(label, *at, arm)) for at in recalls for arm in arms]
            cells += [f3(self.text(label, end, arm)) for end in texts for arm in arms]
            lines.append(row(f"`{label}`", *cells))
        return "\n".join(lines)

    # For `claims`: rows are findings about claims.

    def finding(self, name: str, pattern: str) -> pd.Series:
        """The one finding about a claim whose description has this pattern."""
        found = self.rows("findings", id=name)
        found = found[found["what"].str.contains(pattern)]
        return only(row for _, row in found.iterrows())

    def finding_interval(self, name: str, pattern: str) -> str:
        """The number and the interval with which such a finding begins."""
        measured = self.finding(name, pattern)["measured"]
        return str(re.match(r"\S+ \[[^]]+\]", measured).group())

    # For `encodings`: rows are encodings.

    def recall_gap(self, a: str, b: str, back: int, context: int) -> str:
        """The difference a - b in recall of two encodings, trained with the same seeds,
        with its interval over seeds.
        """
        at = {"distance_tokens": back, "context_tokens": context}
        recalls = self.rows("copy_accuracy", **at).pivot(
            index="seed", columns="encoding", values="accuracy"
        )
        found = average_samples(recalls[a] - recalls[b])
        return interval([found.value, found.low, found.high], 2)

    def encoding_gap(self, a: str, b: str, metric: str, times: int) -> str:
        """The difference a - b of a metric at a multiple of the trained length, with
        its interval; `b` is the baseline, or the baseline under a method.
        """
        name = "against_methods" if " + " in b else "comparisons"
        at = {"metric": metric, "times_trained_len": times}
        found = self.rows(name, encoding_a=a, encoding_b=b, **at)
        row = only(row for _, row in found.iterrows())
        return interval([row["difference"], row["ci_low"], row["ci_high"]])


@cache
def run(name: str) -> Run:
    """The committed run of a config: `extrapolate/extrapolate-2x`."""
    return Run(*name.split("/"))


def only(found) -> object:
    """The one element."""
    (one,) = found
    return one


def require_number(value: float, digits: int) -> str:
    """A rounded number, a dash where there is none."""
    return "–" if math.isnan(value) else f"{value:.{digits}f}"


def f2(value: float) -> str:
    """Two decimals."""
    return require_number(value, 2)


def f3(value: float) -> str:
    """Three decimals."""
    return require_number(value, 3)


def pct(value: float) -> str:
    """A share in whole percent."""
    return "–" if math.isnan(value) else f"{100 * value:.0f} %"


def sci(value: float, digits: int = 2) -> str:
    """A power of ten: 6.54e7."""
    mantissa, exponent = f"{value:.{digits}e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def interval(ends: Sequence[float], digits: int = 3) -> str:
    """A value and its interval."""
    # Without the sign of a zero.
    value, low, high = (f"{round(end, digits) + 0.0:.{digits}f}" for end in ends)
    return f"{value} [{low}, {high}]"


def row(*cells: object) -> str:
    """A line of a table."""
    return f"| {' | '.join(map(str, cells))} |"


def power_of_two(tokens: int) -> str:
    """4k or 2M."""
    return f"{tokens >> 20}M" if tokens >= 1 << 20 else f"{tokens >> 10}k"


def bounds() -> str:
    """A row per context: base to use, printed base and where it fails, first base,
    their ratio.
    """
    base = run("base/base-published-5b7c425b")
    printed = base.table("published").set_index("context_tokens")
    lines = []
    for bound in base.table("bound").itertuples():
        cells = ["none", "", sci(bound.smallest_admissible_base), ""]
        if bound.context_tokens in printed.index:
            own = printed.loc[bound.context_tokens]
            fails = own["paper_fails_at_tokens"]
            cells[0] = sci(own["paper_base"], 1)
            cells[1] = "holds" if pd.isna(fails) else f"{fails:,.0f}"
            cells[3] = f2(own["times_exact"])
        lines.append(
            row(
                power_of_two(bound.context_tokens),
                sci(bound.recommended_base, 1),
                *cells,
            )
        )
    return "\n".join(lines)


def fails_at(base: float, head_dim: int, context: int) -> str:
    """The first distance in a context at which the sum of cosines is negative."""
    from ropelab.math.bounds import Similarity, find_first_negative

    return f"{find_first_negative(Similarity.of_head(head_dim), base, context):,}"


@cache
def hold_as_rounded() -> list[int]:
    """The contexts whose printed base fails while another base, which has the same two
    digits, holds.
    """
    from ropelab.math.bounds import Similarity, find_first_negative

    base = run("base/base-published-5b7c425b")
    printed, bound = base.table("published"), base.table("bound")
    is_listed = bound.set_index("context_tokens")["status"] == "all windows"
    similarity = Similarity.of_head(128)
    found = []
    for one in printed[printed["paper_fails_at_tokens"].notna()].itertuples():
        context = int(one.context_tokens)
        half = 10 ** (math.floor(math.log10(one.paper_base)) - 1) / 2
        low, high = one.paper_base - half, one.paper_base + half
        if is_listed[context]:
            # All bases that hold are in these intervals.
            held = base.rows("windows", context_tokens=context)
            holds = ((held["low"] < high) & (held["high"] >= low)).any()
        else:
            tried = (low + (high - low) * step / 400 for step in range(400))
            holds = any(
                find_first_negative(similarity, x, context) is None for x in tried
            )
        if holds:
            found.append(context)
    return found


def presets() -> pd.DataFrame:
    """Cast plans of implementations, with the first position that each gets wrong."""
    plans = run("precision/precision-implementations").rows("casts", kind="preset")
    return plans.set_index("name")


def reports() -> dict[str, tuple[int, int]]:
    """Count the printed numbers of each report that are reproduced, and all of them."""
    from ropelab.math.numerics.incidents import measure_incidents

    found = measure_incidents()
    names = found["source"].str.extract(r"github\.com/[\w.-]+/([\w.-]+)/\w+/(\d+)")
    verdicts = (found["verdict"] == "agrees").groupby(
        (names[0] + " " + names[1]).fillna(found["source"]), sort=False
    )
    return {name: (int(one.sum()), len(one)) for name, one in verdicts}


def encodings(name: str, described: Mapping[str, str]) -> str:
    """A row per encoding, with its description: recall by the worst seed and the mean,
    in 512 tokens, and text.
    """
    quality, lines = run(f"encodings/{name}").table("quality"), []
    copies = run(f"encodings/{name}").rows("copy_accuracy", distance_tokens=384)
    far = copies.groupby("encoding")["accuracy"].mean()
    for encoding, words in described.items():
        mine = quality[quality["encoding"] == encoding]
        wide = mine.pivot(index="metric", columns="times_trained_len", values="value")
        worst = mine[
            (mine["metric"] == "copy accuracy") & (mine["times_trained_len"] == 1)
        ]
        cells = [f2(worst["worst_seed_value"].item())]
        cells += [f2(wide.loc["copy accuracy", times]) for times in (1, 4)]
        cells.append(f2(far.get(encoding, math.nan)))
        cells += [f3(wide.loc["text loss", times]) for times in (1, 4)]
        lines.append(row(f"`{encoding}`: {words}", *cells))
    return "\n".join(lines)


def case(name: str) -> str:
    """The first cells of a claim's row: its name, statement and verdict."""
    from ropelab.claims.ledger import CLAIMS

    claim = only(claim for claim in CLAIMS if claim.id == name)
    said = only(run("claims/claims").rows("claims", id=name).itertuples())
    return f"| `{name}` | {claim.statement} | {said.verdict} |"


def count_verdicts(evidence: str, verdict: str = "") -> int:
    """Count the claims of a kind of evidence, all or with a verdict."""
    rows = run("claims/claims").rows("claims", evidence=evidence)
    return int((rows["verdict"] == verdict).sum()) if verdict else len(rows)


def environment() -> jinja2.Environment:
    """Return the environment of templates; a name that does not exist is an error."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    made.filters |= {
        "f2": f2,
        "f3": f3,
        "pct": pct,
        "sci": sci,
    }
    functions = (
        run,
        row,
        bounds,
        fails_at,
        hold_as_rounded,
        presets,
        reports,
        encodings,
        interval,
        case,
    )
    made.globals |= {function.__name__: function for function in functions}
    made.globals |= {"count_verdicts": count_verdicts, "only": only}
    made.globals["runtimes"] = len(RUNTIMES)
    return made


def refilled(text: str) -> str:
    """Fill paragraphs and list items again, since numbers of any length were put into
    them.
    """
    fill = TextWrapper(100, break_long_words=False, break_on_hyphens=False)

    def filled(block: str) -> str:
        if block.strip().startswith(("|", "#", "!", "<", "    ")):
            return block
        marker = re.match(r"- |\d\. ", block)
        # A paragraph of a list item is indented as the item's text is.
        indent = re.match(" *", block).group()
        fill.initial_indent = indent
        fill.subsequent_indent = " " * len(marker.group()) if marker else indent
        text = " ".join(block.split())
        # A number stays on the line of its percent sign, and an interval on one line.
        tied = re.sub(r"(?<=\d) (?=%)|(?<=\d,) (?=-?\d+\.\d+\])", NO_BREAK, text)
        return fill.fill(tied).replace(NO_BREAK, " ")

    parts = re.split(
        r"(^```.*?^```$|\n{2,}|\n(?=- |\d\. ))", text, flags=re.MULTILINE | re.DOTALL
    )
    whole = "".join(
        part if part.startswith("```") or not part.strip() else filled(part)
        for part in parts
    )
    return whole.rstrip("\n") + "\n"


def rendered() -> dict[str, str]:
    """All files by their path from the root."""
    made = environment()
    files = {}
    for name, target in TARGETS.items():
        text = made.get_template(name).render()
        if name.endswith(".md"):
            text = refilled(text)
        files[target] = text
    return files


def main(write: bool) -> int:
    """Name, and with `write` mend, the files that differ; their number."""
    differing = {f: t for f, t in rendered().items() if (ROOT / f).read_text() != t}
    for file, text in differing.items():
        print(f"{file} {'written' if write else 'differs; make docs writes it'}")
        if write:
            (ROOT / file).write_text(text)
    return 0 if write else len(differing)


if __name__ == "__main__":
    sys.exit(main("--write" in sys.argv[1:]))
