"""Latent Dirichlet allocation: kernels of the samplers, programs, and training."""
