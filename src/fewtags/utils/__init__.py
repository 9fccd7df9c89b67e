"""Helpers for files, progress, threads and signals."""
