"""Diagnosis: problems of the whole system (`doctor`), and the state and history of a job."""
