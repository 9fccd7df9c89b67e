"""Grids of runs, and their tables and figures."""
