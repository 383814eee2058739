"""Convolutions on the CPU: geometry, two engines (NumPy, and C built by the system's compiler), and their choice."""
