"""Statements about trained models, asked of the stored runs of the labs that train them."""
