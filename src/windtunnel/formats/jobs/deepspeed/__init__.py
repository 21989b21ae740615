"""DeepSpeed's configuration, and the file that other configurations name."""
