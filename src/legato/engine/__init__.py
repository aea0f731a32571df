"""The engine: the step loop, its building, and the frontends around it."""
