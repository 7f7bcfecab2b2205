"""Learned policies: the windows they train on, what they are rewarded for, and how they are trained."""
