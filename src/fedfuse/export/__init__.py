"""Export a finished run as a folder for a model hub. The run directory is read, never written to."""
