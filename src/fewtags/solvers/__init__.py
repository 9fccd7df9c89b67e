"""Logistic regression, a graph of neighbours, folds: pure functions on tensors that methods and encoders share."""
