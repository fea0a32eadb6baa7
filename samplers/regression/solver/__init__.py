"""Working-set solver of a regression for consecutive lambdas."""
