"""The parts of the embedded scenes: the plan, the backdrop, and the painters of single things."""
