"""The only door to the device: streams, capture and replay, memory."""
