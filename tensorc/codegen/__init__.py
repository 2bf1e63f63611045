"""Code generators: a flat function in, an Artifact out."""
