"""Self-tests of a node, a pair of nodes or a group: programs with a time limit that report which backend they measured."""
