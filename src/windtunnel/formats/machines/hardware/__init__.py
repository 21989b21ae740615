"""What a machine says of itself: GPU and NIC matrices, hardware trees, fabrics. Each becomes a node or a fabric of a cluster."""
