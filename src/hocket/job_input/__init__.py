"""What people write about a job, on the command line, in files and in the page: read, checked, and written again."""
