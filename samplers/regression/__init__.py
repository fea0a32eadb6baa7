"""Lasso, elastic net, logistic and softmax regression: losses, solvers, programs, and paths."""
