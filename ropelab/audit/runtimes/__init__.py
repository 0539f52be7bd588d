"""One reader per runtime: from a configuration to the rotation of each layer type."""
