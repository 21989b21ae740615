"""Constants of `compute.forward`, fitted on aiconfigurator's tables and on measured recurrences."""
