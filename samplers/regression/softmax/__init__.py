"""Multi-class linear models by stochastic gradient descent."""
