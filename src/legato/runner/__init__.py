"""ExecutionPlan -> tokens: persistent buffers, the step function, capture and replay."""
