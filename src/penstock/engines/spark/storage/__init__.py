"""Files and columns: atomic writes, Arrow files, row conversion and column names."""
