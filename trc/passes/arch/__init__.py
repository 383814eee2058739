"""The steps from a BluePrint's tree to a normalised, fused list of layers (design section 4), one file a step."""
