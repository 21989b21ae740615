"""What a machine says of itself: GPU and NIC matrices, fabrics, hardware trees. Each becomes a node or a fabric of a cluster."""
