"""How driver and agents talk: typed messages in frames of a limited size, over TLS with a pinned certificate or a private
socket."""
