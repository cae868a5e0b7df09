"""A campaign of faults: kills, full disks, damaged files, hostile uploads and bad inputs, drawn by a seed.

`make faults` prints what was tried and what went wrong; the suite runs a part of it with a fixed seed.
"""
