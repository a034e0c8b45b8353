"""What every other room stands on: configuration, random numbers, timing, records of runs."""
