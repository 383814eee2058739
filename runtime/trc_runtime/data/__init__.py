"""Data sets: reading, fetching, and filling a session's input buffers with batches."""
