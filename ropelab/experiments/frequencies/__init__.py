"""`ropelab frequencies`: one frequency or many, by arithmetic and in trained models."""
