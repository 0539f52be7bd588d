"""The smallest models that the experiments train: they learn nothing, and take no time."""

SMALL = {
    "train_len": 64,
    "test_len": 256,
    "width": 16,
    "heads": 2,
    "head_dim": 8,
    "steps": 2,
    "tokens_per_step": 128,
    "documents": 3,
    "sequences": 2,
    "device": "cpu",
}
