"""How nets compute: batches, the device that they run on and how data reaches it, threads, optimizers' steps."""
