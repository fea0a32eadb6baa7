"""Estimators: the models with the interface of scikit-learn."""
