"""Training: schedules, the loop, checkpoints, and the command line that both tools share."""
