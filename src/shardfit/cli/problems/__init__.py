"""Commands about a problem of one's own, named by a configuration: fit, plan, sample, consensus, calibrate."""
