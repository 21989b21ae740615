"""ASTRA-sim followed to the nanosecond: its scheduling, its collectives and its analytical networks. Times are whole ns.

Rules and formulas were read in astra-sim/astra-sim 518bd51, astra-network-analytical 599a047 and astra-memory-analytical 641cce8.
"""
