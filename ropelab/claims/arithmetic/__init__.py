"""Names that other rooms still take from here."""
