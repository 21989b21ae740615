"""windtunnel's own modules of a decoder, one idea a file, for one tensor-parallel rank and without its communication."""
