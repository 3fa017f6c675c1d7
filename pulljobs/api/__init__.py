"""The broker protocol over HTTP; mount it with `include("pulljobs.api.urls")`."""
