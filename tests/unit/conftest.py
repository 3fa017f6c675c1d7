from hypothesis import settings

# A busy machine is no failure.
settings.register_profile("pulljobs", deadline=None)
settings.load_profile("pulljobs")
