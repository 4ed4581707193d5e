"""The bandit: policies, clustering, masks and rewards. Pure: numpy and scikit-learn, no device, model or database."""
