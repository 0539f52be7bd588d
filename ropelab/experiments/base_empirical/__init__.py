"""Does the bound on the base predict where retrieval fails? Small models, trained and measured."""
