"""Diagnosis: problems of the whole system (`pulljobs doctor`), and state and history of a job."""
