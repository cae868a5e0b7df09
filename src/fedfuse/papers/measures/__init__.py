"""Functions that measure a table or figure which is no comparison of runs."""
