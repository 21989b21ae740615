"""Machines whose accelerators are joined along dimensions: their sizes, plans on them, and the parts that groups run over."""
