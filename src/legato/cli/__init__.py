"""The command line: each command a thin layer over the engine, server or bench."""
