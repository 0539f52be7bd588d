"""Which base fits a context length, by every theory, the exact one with a certificate."""
