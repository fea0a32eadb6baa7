"""Multi-class regression by stochastic gradient descent."""
