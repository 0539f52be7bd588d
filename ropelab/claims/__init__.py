"""Statements about rotary embeddings with their sources, judged by computing.

A claim is a record in a TOML file; its check is a function in the Python file of the same name.

record      Claim, Finding, Findings, Verdict: how a verdict follows from findings
ledger      all claims in order, found by id or by source; sources; `judged`, those of one run
attention, forms, periods, sinusoids, scores, encodings, methods, published
            checks by a computation, by program code or by a dated document
trained_methods, trained_encodings
            checks by the stored runs of the labs, which `stored` reads
notes       the pages docs/notes, written from the tables of a run
"""
