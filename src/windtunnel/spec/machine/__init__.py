"""The machine: GPU, node, host memory, fabric, power and cost."""
