"""Step records, their reason codes, and metrics. Knows nothing of the stages that write them."""
