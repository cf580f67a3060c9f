"""What can be said about finished traces: tables and drawings, a comparison of two, a diagnosis with remedies."""
