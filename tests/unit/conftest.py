from hypothesis import HealthCheck, settings

# A slow example on a busy machine is no failure.
settings.register_profile("pulljobs", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("pulljobs")
