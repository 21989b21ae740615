"""Self-tests of a node, a pair and a group: programs of bounded time that each say which backend they measured."""
