"""GELU for trc: `trc_gelu.layer` for the compiler, `trc_gelu.kernels` for the runtime.

Nothing is imported here, because the runtime must work where the compiler is not installed.
"""
