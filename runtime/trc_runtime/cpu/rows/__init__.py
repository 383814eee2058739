"""Batch norm over rows of channels, and half conversion: in NumPy, and in C built by the system's compiler."""
