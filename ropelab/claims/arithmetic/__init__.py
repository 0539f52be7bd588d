"""Statements that a computation, program code or a dated document decides, by subject."""
