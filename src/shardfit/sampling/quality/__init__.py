"""Whether draws can be trusted: diagnostics, scores of models, calibration."""
