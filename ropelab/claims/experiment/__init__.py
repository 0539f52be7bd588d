"""`ropelab claims`: what textbooks and papers say about rotary embeddings, checked by computing."""
