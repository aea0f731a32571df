"""Triton kernels with their launchers, and beside them the plain torch operations that they must agree with."""
