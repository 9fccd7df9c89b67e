"""Grids of runs, and the tables and figures that are made of them."""
