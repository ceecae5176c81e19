"""The likelihood of measured speckle: C2 − 1 with its diagonal is the sample covariance of intensities.

blocks: block averages of frames, and the diagonal; terms: whitened sums for the search; weights: what whitens them;
noise: how many pixels and speckles the scatter of the data amounts to, and the covariance of the gradient.
"""
