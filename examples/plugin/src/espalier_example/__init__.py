"""A plug-in for Espalier: one module for each thing that it adds."""
