"""Progressive queries: aggregate SQL in batches, with intervals that narrow until the answer is exact."""
