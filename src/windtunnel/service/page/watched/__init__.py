"""Live runs of `fleet`: the places that the operator named, and looks at them, each in a confined process of its own."""
