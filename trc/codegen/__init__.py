"""From IR to what a runtime takes: the Plan."""
