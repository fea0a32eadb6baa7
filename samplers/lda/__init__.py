"""Latent Dirichlet allocation: kernels of the samplers, their programs, and how they are trained."""
