"""Arrays, random numbers, time, traffic and memory: the ground that every other room stands on."""
