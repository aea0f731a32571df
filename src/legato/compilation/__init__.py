"""Splitting a model at its attention calls and compiling what lies between; applied from outside to any model."""
