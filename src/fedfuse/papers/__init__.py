"""The tables and figures of the papers, each as a file: its experiment, the paper's numbers, and the claims to check.

`items/` holds the files, `item.py` their schema. `study.py` measures one, most by the runs of `comparison.py`;
`claims.py` checks its claims, `page.py` and `overview.py` show the result.
"""
