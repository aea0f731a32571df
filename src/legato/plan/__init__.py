"""ScheduledBatch -> ExecutionPlan. Pure."""
