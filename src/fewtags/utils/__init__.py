"""Files, progress, threads and signals: what every part needs and none is about."""
