"""Eight real jobs on four hosts, under policies that share machines and one that does not."""
