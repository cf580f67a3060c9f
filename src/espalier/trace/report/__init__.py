"""Reports on finished traces: tables and charts, a comparison of two, a diagnosis with remedies."""
