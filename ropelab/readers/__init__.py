"""A configuration or GGUF file, read as each runtime reads it: one reader per runtime."""
