"""A path of lambdas and its cross-validation: plan, solver, training."""
