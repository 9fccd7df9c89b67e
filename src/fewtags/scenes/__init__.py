"""Synthetic scenes: their layout and their rendering."""
