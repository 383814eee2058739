"""Other formats that trc reads and writes."""
