"""Training state: optimizers, train states, and exponential moving averages of parameters."""
