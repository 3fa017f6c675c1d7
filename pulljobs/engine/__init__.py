"""Engine without Django: claims, keys, settlements, validation and telemetry, with their SQL."""
