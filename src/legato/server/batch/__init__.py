"""OpenAI's batch files: requests in one file, their answers in another, in process and resumable."""
