"""Matrix factorization: kernels of its methods, their programs, training, and recommendation."""
