"""Audits are asked about the configurations that the readers are compared on."""

from tests.readers.conftest import golden

__all__ = ["golden"]
