"""What a run says of several casts, in sentences."""

import pandas as pd
import pytest

from ropelab.runs.sentences import describe_casts_apart

TABLE = pd.DataFrame(
    {"cast": ["a", "b", "c", "d", "e"], "kl": [1.0, 5.0, 0.5, 2.0, 3.0]}
)


@pytest.mark.parametrize(
    ("left_out", "more"),
    [
        ("abc", []),
        ("a", ["1 more cast with a lower KL"]),
        ("", ["2 more casts with a lower KL"]),
    ],
)
def test_the_casts_that_differ_least_share_a_sentence(
    left_out: str, more: list[str]
) -> None:
    table = TABLE[~TABLE["cast"].isin([*left_out])]
    farthest = [cast for cast in "bedac" if cast not in left_out][:3]
    said = describe_casts_apart(
        table, "kl", lambda row: str(row["cast"]), "with a lower KL"
    )
    assert said == farthest + more
