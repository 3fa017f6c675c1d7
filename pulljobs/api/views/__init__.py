"""One module an endpoint, on the view they share."""
