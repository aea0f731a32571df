"""The paged KV cache: specs per layer group, block pool, prefix index (pure), and the device storage."""
