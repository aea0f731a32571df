"""Graphs: key, policy, ladder, catalog and dispatch are pure values; capture and replay drive the device."""
