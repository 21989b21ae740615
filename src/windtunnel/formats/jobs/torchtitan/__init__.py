"""torchtitan's configurations and model flavors."""
