"""The cost of every encoding in time, against the model without positions in the same
run.

Beside the measured ratios stand those of the matrix products that `ropelab encodings`
counts, which are the same on every machine.

    python benchmarks/bench_encodings.py [--train-len 512] [--test-len 2048] [--rounds 7]
"""

import argparse
import math

import torch

from ropelab.experiments.encodings import EncodingsConfig, cost
from ropelab.runs.cell import Context
from ropelab.runs.config import build


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Time every encoding against NoPE.")
    parser.add_argument("--train-len", type=int, default=512)
    parser.add_argument("--test-len", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=7)
    return parser.parse_args()


def main() -> None:
    """Print a row per encoding."""
    typed = arguments()
    lengths = {"train_len": typed.train_len, "test_len": typed.test_len}
    config = build(EncodingsConfig, lengths)
    counted = cost.measure_costs(config).set_index("encoding")
    print(
        f"{config.layers} layers, width {config.width}, {config.heads} heads; training"
        f" windows of {config.train_len} tokens; {torch.get_num_threads()} threads;"
        " ratios to nope"
    )
    print(
        f"{'encoding':<17}{'tokens/s':>9}{'train time':>12}{'(products)':>12}"
        f"{'ms/token':>10}{'decode time':>13}{'(products)':>12}{'at tokens':>11}"
    )
    cost.ROUNDS = typed.rounds
    for row in cost.Timing(config).tables(Context())["times"].to_dict("records"):
        train, decode = counted.loc[
            row["encoding"], ["train_flops_ratio", "decode_flops_ratio"]
        ]
        print(
            f"{row['encoding']:<17}{row['training_tokens_per_second']:>9,.0f}"
            f"{row['training_time_ratio'] or math.nan:>12.2f}{train:>12.2f}"
            f"{1e3 * row['decode_seconds']:>10.2f}{row['decode_time_ratio'] or math.nan:>13.2f}"
            f"{decode:>12.2f}{row['decode_context_tokens']:>11}"
        )


if __name__ == "__main__":
    main()
