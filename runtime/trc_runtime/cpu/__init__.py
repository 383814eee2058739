"""The CPU target: every node bound once to NumPy views, and the list of them replayed."""
