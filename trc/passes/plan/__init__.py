"""The passes from a normalised network to a memory plan, graphs, steps and an atlas. One file a pass."""
