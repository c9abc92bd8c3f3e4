"""Files and columns: atomic files, Arrow files, schemas, column names and conversion of rows."""
