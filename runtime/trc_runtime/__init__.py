"""The runtime of trc: it executes compiled bundles and never imports the compiler."""
