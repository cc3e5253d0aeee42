"""Record batches: the v2 format at fixed offsets, the older message sets, the codecs, and the compiled kernel."""
