"""`ropelab encodings`: every position encoding in the same small model, trained and measured."""
