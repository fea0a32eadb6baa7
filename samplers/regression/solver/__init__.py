"""Working sets: the solver of a regression for one lambda after another."""
