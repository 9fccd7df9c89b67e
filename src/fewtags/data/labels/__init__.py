"""Label files: our CSV and the formats of other tools, all read into one table."""
