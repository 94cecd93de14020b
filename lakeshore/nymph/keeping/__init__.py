"""The parts of the keeper: what is said over its socket, the jobs that it holds, what the system tells of processes."""
