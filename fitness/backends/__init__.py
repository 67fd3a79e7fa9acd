"""How each kernel language is checked and built."""
