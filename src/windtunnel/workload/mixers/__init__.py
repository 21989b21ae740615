"""What mixes tokens in a layer, one file each; `spec/mixer.py` lists them."""
