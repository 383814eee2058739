"""trc: a compiler for training neural networks."""
