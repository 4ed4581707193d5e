"""What runs inside a lane, under the user's interpreter: the standard library, torch and triton only."""
