"""From files of other programs, or from generators, to graph folders."""
