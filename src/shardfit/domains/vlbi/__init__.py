"""Very long baseline interferometry: data, closure quantities, images, simulation."""
