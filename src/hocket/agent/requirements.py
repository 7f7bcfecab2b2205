"""What pip is asked for: lines as in a file of requirements."""

_FILES = (".", "-e", "-r", "-c", "--editable", "--requirement", "--constraint", "file:")


def names_files(line: str) -> bool:
    """Does a line name a file of the job's working directory?"""
    is_path = line.startswith(_FILES) or " @ file:" in line
    return is_path or (line.endswith((".whl", ".tar.gz", ".zip")) and "://" not in line)
