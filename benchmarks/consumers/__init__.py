"""Time of a claim, a finish, a publish and a worker, among many consumers without jobs."""
