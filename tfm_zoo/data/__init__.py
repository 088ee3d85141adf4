"""Files and data sets of rows, their splits and labels, the options that name them; generated data; windows."""
