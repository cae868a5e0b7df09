"""What can be made of a finished run: a folder for a model hub. The run directory is read, and never written to."""
