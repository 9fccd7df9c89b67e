"""Heads and bodies that methods are built of."""
