"""What every stream reader shares: the gate, start offsets, batch sizes and the data source class."""
