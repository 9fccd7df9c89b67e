"""The one loop, its stages, its sources of batches and its checkpoints."""
