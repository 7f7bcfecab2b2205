"""Dorm: one partition an application, resized by an integer program under a fairness and an adjustment limit."""
