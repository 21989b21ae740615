"""Python recipes of Megatron-Bridge, NeMo and torchtitan, read without running them."""
