"""Logistic regression, nearest-neighbour graph, cross-validation folds: pure functions on tensors."""
