"""Jobs on clusters: checks of hosts and networks, batch scripts."""
