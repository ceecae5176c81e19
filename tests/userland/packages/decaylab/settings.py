FLOOR = 0.0
ahead, steps, value = object(), None, 3  # named as what solvers have
