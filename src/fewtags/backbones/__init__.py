"""The networks that read pixels, and where their weights come from."""
