"""What every room may use: imports that wait, locks and whole files, what stays off the screen."""
