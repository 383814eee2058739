"""Code generation for CUDA: kernels, cuDNN calls, and the driver that captures them."""
