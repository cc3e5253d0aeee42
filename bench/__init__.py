"""Measures Barnabas on this machine. `python -m bench [SECTION ...]`; sections are the modules of bench/sections."""
