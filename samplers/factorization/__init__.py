"""Matrix factorization: kernels of the methods, programs, training, and recommendation."""
