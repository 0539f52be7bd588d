"""What has been said about rotary embeddings: statements with their sources, judged by computing.

record      Claim, Finding, Evidence, Verdict: how a verdict follows from what is found
sources     who said it: title, author or site, year, link
thresholds  every number that a verdict depends on
arithmetic/ statements that a computation, program code or a dated document decides
trained/    statements about trained models, asked of the stored runs of the labs
ledger      all of them in order, found by id or by source
questions   what the notes ask their readers, answered by what was measured
judge       the statements that one run of a lab speaks about
"""
