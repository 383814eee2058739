"""The CUDA target: a generated driver's calls become graph nodes, launches one by one, or checks."""
