"""The drawn scenes: what stands where, and how it is painted."""
