"""Design matrices: columns of features, for regressions."""
