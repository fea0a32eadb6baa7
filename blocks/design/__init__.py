"""Design matrices: features stored by column, for regressions."""
