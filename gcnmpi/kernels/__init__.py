"""Local arithmetic: sparse × dense products and everything dense. One file a kernel."""
