"""Backbone networks and their weights."""
