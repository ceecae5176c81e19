"""Commands about posteriors: sample, consensus, calibrate."""
