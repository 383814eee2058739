"""The vocabulary that compiler and runtime share: regions, graph ids, data types, configs, the Plan."""
