"""Latent Dirichlet allocation: sampler kernels, programs, and training."""
